"""The protocol of the sink against a real broker, without Spark: every row once, whatever attempts come and go."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.commits import CommittedOffset
from odradek.client.sync import Client
from odradek.model import TopicPartition
from odradek.spark.write.delivery import deliver
from odradek.spark.write.sender import BrokenSequenceError, Prepared, WriteError
from odradek.spark.write.sink_state import EPOCH_MAX, Identity, SupersededError
from odradek.testing import EmbeddedBroker
from tests.spark.sink_tools import Place, Row, claimed, read, sample, send, shuffled, spooled, write, write_some


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


def state(client: Client, identity: Identity) -> dict[TopicPartition, CommittedOffset]:
    return client.admin.group_offsets(identity.group)


def test_a_batch_is_written_and_the_next_one_behind_it(client: Client, place: Place) -> None:
    rows = sample(300, distinct=100)
    assert write(client, place.task, place.topic, rows) == 300
    assert write(client, place.task._replace(batch=1), place.topic, rows) == 300
    assert read(client, place.topic) == Counter(rows + rows)


def test_tasks_of_the_same_batch_know_nothing_of_each_other(client: Client, place: Place) -> None:
    rows = sample(50)
    for task in range(3):
        assert write(client, place.task._replace(task=task), place.topic, rows) == 50
    assert read(client, place.topic) == Counter(rows * 3)


@pytest.mark.parametrize("order", [list, shuffled], ids=["same order", "other order"])
def test_a_replay_of_what_is_written_writes_nothing(
    client: Client, place: Place, order: Callable[[list[Row]], list[Row]]
) -> None:
    rows = sample(300, distinct=100)
    write(client, place.task, place.topic, rows)
    for attempt in range(1, 4):
        assert write(client, place.task._replace(attempt=attempt), place.topic, order(rows)) == 0
    assert read(client, place.topic) == Counter(rows)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.none() | st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=60)), min_size=1),
    st.integers(0, 5),
    st.integers(0, 3),
)
def test_a_replay_of_what_is_partly_written_writes_the_rest(
    client: Client, rows: list[Row], batch_count: int, seed: int
) -> None:
    name = f"p-{uuid.uuid4().hex}"  # Hypothesis makes chance repeatable, and a name must be new
    client.admin.create_topic(name, 3)
    place = Place(name, Identity(name, 0, 7))
    write_some(client, place, rows, batch_count)
    written = sum(read(client, name).values())
    assert write(client, place.task, name, shuffled(rows, seed)) == len(rows) - written
    assert read(client, name) == Counter(rows)


def test_rows_that_a_replay_has_in_addition_are_written(client: Client, place: Place) -> None:
    rows = sample(100)
    write(client, place.task, place.topic, rows)
    more: list[Row] = [(b"new", b"row"), *shuffled(rows), rows[0]]
    assert write(client, place.task, place.topic, more) == 2
    assert read(client, place.topic) == Counter(more)


def test_what_others_write_meanwhile_is_not_taken_for_ours(client: Client, place: Place) -> None:
    rows = sample(100)
    write_some(client, place, rows, 1)
    with client.producer() as producer:
        for key, value in rows:
            producer.send(place.topic, value, key=key)
    write(client, place.task, place.topic, rows)
    assert read(client, place.topic) == Counter(rows + rows)


def test_a_batch_before_the_stored_one_is_skipped(client: Client, place: Place) -> None:
    rows = sample(20)
    write(client, place.task._replace(batch=5), place.topic, rows)
    before = state(client, place.task)
    assert write(client, place.task._replace(batch=4), place.topic, sample(30)) == 0
    assert read(client, place.topic) == Counter(rows)
    assert state(client, place.task) == before


def test_a_producer_serves_a_task_for_all_its_batches_an_epoch_each(client: Client, place: Place) -> None:
    partition = [TopicPartition(place.topic, 0)]
    claims = [claimed(client, place.task._replace(batch=batch), partition) for batch in range(4)]
    assert len({claim.producer_id for claim in claims}) == 1
    assert [claim.epoch for claim in claims] == [0, 1, 2, 3]
    assert not any(claim.is_replay for claim in claims)


def test_attempts_of_the_same_batch_share_the_epoch_and_the_start(client: Client, place: Place) -> None:
    first = write_some(client, place, sample(100), 1)
    second = claimed(client, place.task, list(first.starts))
    assert (second.producer_id, second.epoch, second.starts) == (first.producer_id, first.epoch, first.starts)
    assert second.is_replay and second.token != first.token


def test_a_new_producer_is_taken_when_the_epochs_are_used_up(client: Client, place: Place) -> None:
    partition = TopicPartition(place.topic, 0)
    first = claimed(client, place.task, [partition])
    metadata = {"batch": 0, "pid": first.producer_id, "epoch": EPOCH_MAX, "attempt": "x"}
    offsets = {partition: CommittedOffset(0, -1, json.dumps(metadata))}
    client.call(client.admin.inner.set_group_offsets(place.task.group, offsets))
    rows = sample(40)
    assert write(client, place.task._replace(batch=1), place.topic, rows) == 40
    assert write(client, place.task._replace(batch=1), place.topic, shuffled(rows)) == 0
    second = claimed(client, place.task._replace(batch=2), [partition])
    assert (second.producer_id > first.producer_id, second.epoch) == (True, 1)
    assert read(client, place.topic) == Counter(rows)


def test_an_attempt_at_an_earlier_batch_is_refused(client: Client, other: Client, place: Place) -> None:
    rows = sample(200)
    spool = spooled(client, place.topic, rows)
    calls: list[int] = []

    def later(_: TopicPartition, index: int) -> None:
        if index == 2 and not calls:
            calls.append(write(other, place.task, place.topic, rows))
            calls.append(write(other, place.task._replace(batch=1), place.topic, rows))

    spool.watch = later
    with pytest.raises(SupersededError):
        client.call(deliver(client.cluster, place.task, spool))
    assert read(client, place.topic) == Counter(rows + rows)


def test_a_batch_of_an_older_epoch_is_refused_by_the_broker(client: Client, place: Place) -> None:
    rows = sample(100)
    claim = write_some(client, place, rows, 1)
    write(client, place.task, place.topic, rows)
    write(client, place.task._replace(batch=1), place.topic, rows)
    spool = spooled(client, place.topic, rows)
    partition = spool.partitions()[0]
    with pytest.raises(BrokenSequenceError, match="INVALID_PRODUCER_EPOCH"):
        send(client, claim, {partition: [Prepared(*next(spool.batches(partition))[1:])]}, sequence=3)


def test_records_that_were_deleted_meanwhile_do_not_stop_a_replay(client: Client, place: Place) -> None:
    rows = sample(300)
    claim = write_some(client, place, rows, 2)
    ends = client.admin.list_offsets(dict.fromkeys(claim.starts, "end"))
    client.call(client.admin.inner.delete_records({key: info.offset for key, info in ends.items()}))
    assert write(client, place.task, place.topic, rows) == 300, "nobody can tell any more what was there"
    assert write(client, place.task, place.topic, shuffled(rows)) == 0
    assert read(client, place.topic) == Counter(rows)


def test_offsets_that_somebody_else_committed_are_not_overwritten(client: Client, place: Place) -> None:
    partition = TopicPartition(place.topic, 0)
    client.call(client.admin.inner.set_group_offsets(place.task.group, {partition: 12}))
    with pytest.raises(WriteError, match=f"{place.task.group}.*no sink wrote"):
        write(client, place.task, place.topic, sample(10))
    assert state(client, place.task)[partition].offset == 12
    assert not read(client, place.topic)
