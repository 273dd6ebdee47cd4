"""Two attempts to write the same batch at the same time: whoever is overtaken ends, and every row is there once."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.spark.write import delivery
from odradek.spark.write.delivery import deliver
from odradek.spark.write.sender import Prepared
from odradek.spark.write.sink_state import Claim, Identity, SupersededError
from odradek.testing import EmbeddedBroker
from tests.spark.sink_tools import (
    BATCH_BYTES,
    Place,
    Row,
    claimed,
    read,
    sample,
    send,
    shuffled,
    spooled,
    write,
    write_some,
)

PATIENCE_SECONDS = 60


@pytest.fixture
def place(client: Client, new_name: Callable[[], str]) -> Place:
    name = new_name()
    client.admin.create_topic(name, 3)
    return Place(name, Identity(name, 0, 0))


@pytest.fixture(scope="module")
def other(server: EmbeddedBroker) -> Iterator[Client]:
    """A client for a second attempt that runs beside the first."""
    with Client(server.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an attempt send on without looking at the state, as if it had looked a moment too early."""

    async def look_away(_: object) -> None: ...

    monkeypatch.setattr(delivery._Supervisor, "check", look_away)


def test_an_attempt_looks_at_the_state_before_it_sends_more(client: Client, other: Client, place: Place) -> None:
    rows = sample(400)
    spool = spooled(client, place.topic, rows)
    claims: list[Claim] = []

    def overtake(_: TopicPartition, index: int) -> None:
        if index == 2 and not claims:
            claims.append(claimed(other, place.task, spool.partitions()))

    spool.watch = overtake
    with pytest.raises(SupersededError):
        client.call(deliver(client.cluster, place.task, spool))
    assert sum(read(client, place.topic).values()) < 400, "it went on although another attempt has the batch"


@pytest.mark.usefixtures("_unchecked")
def test_an_attempt_that_is_overtaken_ends_and_doubles_nothing(client: Client, other: Client, place: Place) -> None:
    rows = sample(400, distinct=150)
    spool = spooled(client, place.topic, rows)
    overtaken: list[int] = []

    def overtake(_: TopicPartition, index: int) -> None:
        if index == 2 and not overtaken:
            overtaken.append(0)
            overtaken[0] = write(other, place.task._replace(attempt=1), place.topic, shuffled(rows))

    spool.watch = overtake
    with pytest.raises(SupersededError, match=r"another attempt .* has taken over"):
        client.call(deliver(client.cluster, place.task, spool))
    assert 0 < overtaken[0] < 400, "the second attempt found a part, and wrote the rest"
    assert read(client, place.topic) == Counter(rows)


def test_what_comes_between_a_look_and_the_first_record_is_noticed(client: Client, other: Client, place: Place) -> None:
    rows = sample(400, distinct=150)
    first = spooled(other, place.topic, rows)
    claim = claimed(other, place.task, first.partitions())
    again = spooled(client, place.topic, shuffled(rows))
    looked: list[TopicPartition] = []

    def late(partition: TopicPartition, index: int) -> None:
        """The first attempt still has a batch under way when the second has looked at its last partition."""
        if index == 0:
            looked.append(partition)
            if len(looked) == 4:
                send(other, claim, {key: [Prepared(*next(first.batches(key))[1:])] for key in claim.starts})

    again.watch = late
    sent = client.call(deliver(client.cluster, place.task, again))
    assert 0 < sent < 400
    assert read(client, place.topic) == Counter(rows)


def test_a_record_of_another_attempt_with_the_same_number_is_not_taken_for_ours(
    client: Client, other: Client, place: Place
) -> None:
    rows: list[Row] = [(b"k", b"a"), (b"k", b"b"), (b"k", b"c")]
    first = spooled(other, place.topic, rows, batch_bytes=1)
    (partition,) = first.partitions()
    claim = claimed(other, place.task, [partition])
    again = spooled(client, place.topic, rows[::-1], batch_bytes=1)
    looked: list[int] = []

    def late(_: TopicPartition, index: int) -> None:
        looked.append(index)
        if len(looked) == 4:  # three batches were compared, now the first one is sent
            send(other, claim, {partition: [Prepared(*next(first.batches(partition))[1:])]})

    again.watch = late
    assert client.call(deliver(client.cluster, place.task, again)) == 2
    assert read(client, place.topic) == Counter(rows)


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("batch_bytes", [BATCH_BYTES, 1], ids=["rows in batches", "a row a batch"])
def test_an_attempt_that_still_runs_cannot_take_the_records_of_the_next_one_for_its_own(
    client: Client, other: Client, bootstrap: str, place: Place, batch_bytes: int
) -> None:
    rows: list[Row] = [(b"k", b"value-%012d" % number) for number in range(40)]  # equal sizes: batches of equal counts
    (partition,) = spooled(client, place.topic, rows).partitions()
    first = spooled(client, place.topic, rows, batch_bytes=batch_bytes)
    second = spooled(other, place.topic, rows[::-1], batch_bytes=batch_bytes)
    first_waits, second_waits, first_is_done = threading.Event(), threading.Event(), threading.Event()
    a_batch = next(first.batches(partition)).record_count

    def pause_first(_: TopicPartition, index: int) -> None:
        if index == 1:
            first_waits.set()
            assert second_waits.wait(PATIENCE_SECONDS)

    def pause_second(_: TopicPartition, index: int) -> None:
        if index == 1 and size_of(partition) > a_batch:  # it has sent what was in its first batch
            second_waits.set()
            assert first_is_done.wait(PATIENCE_SECONDS)

    def size_of(wanted: TopicPartition) -> int:
        with Client(bootstrap) as third:
            return third.admin.list_offsets({wanted: "end"})[wanted].offset

    first.watch, second.watch = pause_first, pause_second
    outcomes: list[BaseException | int] = []

    def run_first() -> None:
        try:
            outcomes.append(client.call(deliver(client.cluster, place.task, first)))
        except SupersededError as error:
            outcomes.append(error)
        finally:
            first_is_done.set()

    thread = threading.Thread(target=run_first)
    thread.start()
    assert first_waits.wait(PATIENCE_SECONDS)
    other.call(deliver(other.cluster, place.task._replace(attempt=1), second))
    thread.join()
    assert isinstance(outcomes[0], SupersededError)
    assert read(client, place.topic) == Counter(rows)


class AttemptDiesError(Exception):
    """An attempt ends in the middle of its work."""


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("seed", range(4))
def test_attempts_that_run_and_die_at_the_same_time_leave_every_row_once(
    client: Client, bootstrap: str, place: Place, seed: int
) -> None:
    # With a key each: rows without one may go to one partition in one attempt and to another in the next.
    rows: list[Row] = [(key or b"key", value) for key, value in sample(300, distinct=120)]
    write_some(client, place, rows, seed % 3)
    outcomes: Counter[str] = Counter()
    jitter = threading.Event()

    def attempts(number: int) -> None:
        chance = random.Random(seed * 100 + number)

        def disturb(partition: TopicPartition, index: int) -> None:
            jitter.wait(chance.random() / 200)
            if chance.random() < 0.02:
                raise AttemptDiesError

        with Client(bootstrap) as own:
            for attempt in range(4):
                spool = spooled(own, place.topic, shuffled(rows, chance.randrange(1_000)))
                spool.watch = disturb
                try:
                    own.call(deliver(own.cluster, place.task._replace(attempt=attempt), spool))
                    outcomes["done"] += 1
                except (AttemptDiesError, SupersededError) as error:
                    outcomes[type(error).__name__] += 1

    threads = [threading.Thread(target=attempts, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcomes.values()) == 12, f"an attempt ended in an unexpected way: {outcomes}"
    write(client, place.task, place.topic, shuffled(rows, seed))
    assert read(client, place.topic) == Counter(rows)
