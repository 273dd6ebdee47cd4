"""The loads of `bench.grpc`, a process of their own: calls one behind the other, a stream out, a stream in.

`unary` keeps some calls under way on some connections and counts answers; `publish` sends the same message on one
stream a connection until its time is over, and counts what was confirmed; `subscribe` reads a stream until it has so
many values. The messages come by the standard input in hexadecimal, one a line, given to the connections in turns.
What it prints is a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bench.grpc_echo import PATH as ECHO
from bench.grpc_http2 import Call, CallError, Connection, grpc_message
from odradek.proto import eeylops_pb2, mykafka_pb2

ANSWER_SECONDS_MAX = 30.0
MESSAGES_AHEAD = 4  # of a stream: some that wait for room, so that room is never wasted
EEYLOPS, MYKAFKA = "/eeylops.EeylopsService/", "/mykafka.Broker/"


@dataclass(frozen=True)
class Outcome:
    """What a load was answered."""

    done: int  # answers, requests or values in the time measured
    done_in_all: int  # with those of the warm-up and those that were under way at the end
    seconds: float
    cpu_seconds: float  # of the load itself


def problem(path: str, answer: bytes, request: bytes) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if path == ECHO:
        return "" if answer == request else "another echo"
    if path.startswith(MYKAFKA):
        error = mykafka_pb2.SendMessageResponse.FromString(answer).error
        return f"{error.code} {error.msg}" if error.code else ""
    refusal = eeylops_pb2.ProduceResponse.FromString(answer).error
    return f"{refusal.error_code} {refusal.error_msg}" if refusal.error_code else ""


class Load:
    """Some connections that are read and written as their sockets are ready."""

    def __init__(self, port: int, connections: int) -> None:
        self.connections = [Connection(port) for _ in range(connections)]
        self._by_number = {each.socket.fileno(): each for each in self.connections}
        self._epoll = select.epoll()
        self._writing: set[int] = set()
        for number in self._by_number:
            self._epoll.register(number, select.EPOLLIN)

    def turn(self) -> Iterator[tuple[Connection, list[Call]]]:
        """Write what is to be written, wait, and tell for each connection which calls have ended."""
        for number, connection in self._by_number.items():
            self._watch(number, is_writing=connection.write())
        events = self._epoll.poll(ANSWER_SECONDS_MAX)
        if not events:
            raise CallError(f"no answer for {ANSWER_SECONDS_MAX:.0f} s")
        for number, event in events:
            if event & ~select.EPOLLOUT:
                yield self._by_number[number], self._by_number[number].read()

    def _watch(self, number: int, *, is_writing: bool) -> None:
        if is_writing != (number in self._writing):
            self._writing ^= {number}
            self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if is_writing else 0))

    def close(self) -> None:
        """Hang up."""
        self._epoll.close()
        for connection in self.connections:
            connection.close()


def unary(load: Load, path: str, messages: list[bytes], calls: int, seconds: float, warm_seconds: float) -> Outcome:
    """Ask on all connections, again and again; count what is answered behind the warm-up."""
    framed = {id(each): grpc_message(messages[at % len(messages)]) for at, each in enumerate(load.connections)}

    def ask(connection: Connection) -> None:
        connection.send(connection.open(path), framed[id(connection)], is_last=True)

    for at in range(calls):
        ask(load.connections[at % len(load.connections)])
    begin = time.perf_counter() + warm_seconds
    end, total, warm, cpu, open_calls, cpu_seconds = 0.0, 0, 0, 0.0, calls, 0.0
    is_warm = is_over = False
    measured = 0
    while open_calls:
        for connection, ended in load.turn():
            for call in ended:
                answer = call.messages()
                if wrong := problem(path, answer[0], framed[id(connection)][5:]):
                    raise CallError(f"{path}: {wrong}")
                total += 1
                if is_over:
                    open_calls -= 1
                else:
                    ask(connection)
        now = time.perf_counter()
        if not is_warm and now >= begin:
            is_warm, begin, warm, cpu = True, now, total, time.process_time()
        if is_warm and not is_over and now >= begin + seconds:
            is_over, end, measured, cpu_seconds = True, now, total - warm, time.process_time() - cpu
    return Outcome(measured, total, end - begin, cpu_seconds)


def publish(load: Load, path: str, messages: list[bytes], seconds: float) -> Outcome:
    """One stream a connection, as fast as the server takes it; the time ends with the last confirmation."""
    framed = [grpc_message(message) for message in messages]
    streams = [(each, each.open(path), framed[at % len(framed)]) for at, each in enumerate(load.connections)]
    begin, cpu, sent = time.perf_counter(), time.process_time(), 0
    left, is_over = len(streams), False
    while left:
        for connection, call, message in streams:
            while not is_over and len(call.unsent) < MESSAGES_AHEAD:
                connection.send(call, message, is_last=False)
                sent += 1
        for _, ended in load.turn():
            for call in ended:
                if wrong := problem(path, call.messages()[0], b""):
                    raise CallError(f"{path}: {wrong}")
                if not is_over:
                    raise CallError(f"{path}: it was confirmed before it was over")
                left -= 1
        if not is_over and time.perf_counter() >= begin + seconds:
            is_over = True
            for connection, call, _ in streams:
                connection.close_sending(call)
    return Outcome(sent, sent, time.perf_counter() - begin, time.process_time() - cpu)


def subscribe(load: Load, path: str, messages: list[bytes], values: int) -> Outcome:
    """One stream a connection; the time ends when each has so many values."""
    found: dict[int, int] = {}
    streams = {}
    begin, cpu = time.perf_counter(), time.process_time()
    for at, connection in enumerate(load.connections):
        call = connection.open(path)
        connection.send(call, grpc_message(messages[at % len(messages)]), is_last=True)
        streams[id(connection)], found[id(connection)] = call, 0
    while streams:
        for connection, ended in load.turn():
            if ended:
                raise CallError(f"{path}: the stream ended after {found[id(connection)]} values")
            for message in streams[id(connection)].messages() if id(connection) in streams else ():
                answer = eeylops_pb2.ConsumeResponse.FromString(message)
                if answer.error.error_code:
                    raise CallError(f"{path}: {answer.error.error_code} {answer.error.error_msg}")
                found[id(connection)] += len(answer.values)
            if id(connection) in streams and found[id(connection)] >= values:
                connection.cancel(streams.pop(id(connection)))
                connection.write()
    total = sum(found.values())
    return Outcome(total, total, time.perf_counter() - begin, time.process_time() - cpu)


def main() -> int:
    """Read the messages, load, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("unary", "publish", "subscribe"))
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--calls", type=int, default=0, help="of unary: under way at once, on all connections")
    parser.add_argument("--warm", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--values", type=int, default=0, help="of subscribe: a stream")
    given = parser.parse_args()
    messages = [bytes.fromhex(line) for line in sys.stdin]
    try:
        load = Load(given.port, given.connections)
        if given.kind == "unary":
            outcome = unary(load, given.path, messages, given.calls, given.seconds, given.warm)
        elif given.kind == "publish":
            outcome = publish(load, given.path, messages, given.seconds)
        else:
            outcome = subscribe(load, given.path, messages, given.values)
        load.close()
    except (CallError, OSError) as error:
        print(f"bench.grpc_load: {error}", file=sys.stderr)
        return 1
    print(json.dumps(asdict(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
