"""What the five scripts share: the list of brokers, finding the leader among them, and how results are shown."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import httpx

BROKERS = "1@localhost:8001,2@localhost:8002,3@localhost:8003,4@localhost:8004,5@localhost:8005"

_ELECTION_SECONDS_MAX = 10.0  # for a leader to be found while there is none, or while it does not answer
_RETRY_SECONDS = 0.25
_CONNECT_SECONDS_MAX = 3.0
_READ_SECONDS_MAX = 35.0  # of what does not wait for replicas
_LEADER = re.compile(r"leader is (-?\d+)")


class AnswerError(Exception):
    """A request has failed; the content is what the API has answered, or would have."""

    def __init__(self, content: object) -> None:
        super().__init__(content)
        self.content = content


class Parser(argparse.ArgumentParser):
    """Command lines of the scripts: all have `-b`, and a wrong one ends with 1, as all that fails does."""

    def __init__(self, description: str) -> None:
        super().__init__(description=description)
        self.add_argument(
            "-b", dest="brokers", type=Brokers, default=BROKERS, metavar="BROKERS", help="ID@HOST:PORT,..."
        )

    def error(self, message: str) -> NoReturn:
        """Say what is wrong."""
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


class Brokers:
    """The brokers of `-b`. Requests go to the first, then to whoever is the leader."""

    def __init__(self, text: str) -> None:
        self._urls: dict[str, str] = {}
        for broker in text.split(","):
            broker_id, at, address = broker.strip().rpartition("@")
            host, colon, port = address.rpartition(":")
            if not (at and broker_id and host and colon and port.isascii() and port.isdigit()):
                raise argparse.ArgumentTypeError(f"{broker!r} is no broker: write ID@HOST:PORT")
            self._urls[broker_id] = f"http://{address}"
        self._leader_id = next(iter(self._urls))
        self._client = httpx.Client(trust_env=False)

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def ask(self, method: str, path: str, body: Any = None, *, waits: bool = False, repeats: bool = False) -> Any:
        """Have the leader answer: JSON or None, AnswerError otherwise.

        `waits` is for a request that may take as long as it likes, `repeats` for one that may be sent twice.
        """
        timeout = httpx.Timeout(None if waits else _READ_SECONDS_MAX, connect=_CONNECT_SECONDS_MAX)
        deadline = time.monotonic() + _ELECTION_SECONDS_MAX
        while True:
            failure = self._ask_all(method, path, body, timeout, repeats)
            if not isinstance(failure, AnswerError):
                return failure[0]
            if time.monotonic() >= deadline:
                raise failure
            time.sleep(_RETRY_SECONDS)

    def _ask_all(
        self, method: str, path: str, body: Any, timeout: httpx.Timeout, repeats: bool
    ) -> tuple[Any] | AnswerError:
        """Ask the leader, or whoever may know it; an AnswerError that is given, not raised, may pass by itself."""
        untried = [self._leader_id, *(broker_id for broker_id in self._urls if broker_id != self._leader_id)]
        failure = AnswerError({"detail": "no broker was asked"})
        while untried:
            broker_id = untried.pop(0)
            try:
                response = self._client.request(method, self._urls[broker_id] + path, json=body, timeout=timeout)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = AnswerError({"detail": f"broker {broker_id} cannot be reached: {error}"})
                continue
            except httpx.HTTPError as error:
                reason = str(error) or type(error).__name__
                failure = AnswerError({"detail": f"broker {broker_id} did not answer: {reason}"})
                if not repeats:
                    raise failure from None
                continue
            if response.is_success:
                self._leader_id = broker_id
                return (response.json() if response.content else None,)
            failure = AnswerError(_content(response))
            if response.status_code == httpx.codes.MISDIRECTED_REQUEST:
                untried = self._nearer(failure, untried)
            elif not (repeats and response.status_code == httpx.codes.SERVICE_UNAVAILABLE):
                raise failure
        return failure

    def _nearer(self, failure: AnswerError, untried: list[str]) -> list[str]:
        """Whom to ask when a broker is not the leader: the leader first. One that is not listed cannot be asked."""
        named = _LEADER.search(str(failure.content))
        if named is None or named[1] == "-1":
            return untried
        if named[1] not in self._urls:
            raise failure
        return sorted(untried, key=lambda broker_id: broker_id != named[1])


def carry_out(brokers: Brokers, action: Callable[[], None]) -> int:
    """Do something with the brokers; the exit code is 1, and the error shown, if it fails."""
    try:
        action()
    except AnswerError as failure:
        show(failure.content)
        return 1
    finally:
        brokers.close()
    return 0


def partition_ids(brokers: Brokers, topic: str) -> list[str]:
    """List the partitions of a topic as the API names them, in order."""
    for found in brokers.ask("GET", "/admin/v1/topics", repeats=True)["topics"]:
        if found["topic_name"] == topic:
            return [partition["id"] for partition in found["partitions"]]
    raise AnswerError({"detail": f"topic {topic} does not exist"})


def show(content: object) -> None:
    """Print JSON."""
    say(json.dumps(content, indent=4) + "\n")


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _content(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return {"detail": f"status {response.status_code}: {response.text}"}
