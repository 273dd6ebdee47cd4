"""Random histories of one partition on three brokers, without sockets: what was shown to a consumer is never lost.

Records, flushes, fetches with late answers, lagging and joining followers, elections, crashes that lose what was not
flushed. After each step the committed records must be with whoever leads; in the end all logs are the same.
"""

from __future__ import annotations

import random

import pytest

from odradek.disk.memory import MemoryDisk
from odradek.log.log import PartitionLog
from odradek.replication.fitting import MisfitError
from odradek.replication.following import Following
from odradek.replication.progress import REFUSED_PAUSE_MS, Isr, Progress
from odradek.replication.taking import OutOfRangeError, RefusedError, take
from odradek.wire.messages import fetch
from tests.log.support import LogOnDisk, batch, read_all
from tests.replication.leaders import Copy, Led, answer_to, config

SEEDS, STEPS = 60, 250
LAG_MS = 1_000
CONFIG = config(replica_lag_time_max_ms=LAG_MS, replica_fetch_max_bytes=300)


class Node:
    """A broker with one replica."""

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.disk = MemoryDisk()
        self.broker_epoch = 0
        self.is_up = True
        self.copy = Copy(self.open())
        self.following: Following | None = None
        self.late: tuple[Following, fetch.ResponsePartition] | None = None  # an answer on its way

    def open(self) -> PartitionLog:
        """Read what the disk has."""
        return LogOnDisk(self.disk, "data/t-0").log


class World:
    """The brokers, and the controller's truth."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.nodes = {id_: Node(id_) for id_ in (1, 2, 3)}
        self.now = 0
        self.values = 0
        self.isr: tuple[int, ...] = (1, 2, 3)
        self.leader, self.leader_epoch, self.partition_epoch = -1, -1, 0
        self.committed: dict[int, bytes | None] = {}
        self.led: Led
        self.progress: Progress
        self.elect(1)

    # The controller.

    def elect(self, id_: int) -> None:
        """Make a broker the leader; all that are up hear of it."""
        self.leader, self.leader_epoch, self.partition_epoch = id_, self.leader_epoch + 1, self.partition_epoch + 1
        for node in self.nodes.values():
            node.following = node.late = None
            node.copy.leader_epoch = self.leader_epoch
            if node.is_up and node.id != id_:
                node.following = Following(node.copy)
        copy = self.nodes[id_].copy
        copy.log.epochs.assign(self.leader_epoch, copy.log.next_offset)
        self.led = Led(copy.log)
        self.led.epoch, self.led.high_watermark = self.leader_epoch, copy.high_watermark
        self.progress = Progress(
            id_, (1, 2, 3), self.isr, self.leader_epoch, self.partition_epoch, copy.log.next_offset, self.now
        )
        have = {record.offset: record.value for record in read_all(copy.log)}
        for offset, value in self.committed.items():
            assert have.get(offset) == value, f"broker {id_} leads without the committed record {offset}"

    def elect_somebody(self) -> None:
        up = [id_ for id_ in self.isr if self.nodes[id_].is_up]
        if up:
            self.elect(self.chance.choice(up))
        else:
            self.leader = -1

    def put_out(self, id_: int) -> None:
        """A broker is fenced: the last one in sync stays."""
        if id_ in self.isr and len(self.isr) > 1:
            self.isr, self.partition_epoch = tuple(each for each in self.isr if each != id_), self.partition_epoch + 1
        if self.leader == id_:
            self.elect_somebody()
        elif self.leader >= 0 and self.chance.random() < 0.8:  # sometimes the leader hears of it later
            self.progress.update((1, 2, 3), self.isr, self.partition_epoch)

    def alter(self, isr: Isr | None) -> None:
        """The leader wants another in-sync set."""
        if isr is not None:
            self.progress.proposed(isr)
        if self.progress.proposal is not None:
            self.ask(self.progress.proposal)

    def ask(self, isr: Isr) -> None:
        """The controller decides; the request or the answer may be lost, then it is asked again."""
        if self.chance.random() < 0.2 or self.progress.partition_epoch != self.partition_epoch:
            return  # lost, or newer metadata will tell
        if not all(self.nodes[id_].is_up and epoch in (-1, self.nodes[id_].broker_epoch) for id_, epoch in isr):
            self.progress.refused()
            return
        self.isr, self.partition_epoch = tuple(id_ for id_, _ in isr), self.partition_epoch + 1
        if self.chance.random() < 0.7:
            self.progress.settled(self.isr, self.partition_epoch)

    # Steps.

    def step(self) -> None:
        self.now += self.chance.randint(0, 300)
        steps = [self.produce, self.flush, self.fetch, self.fetch, self.fetch, self.arrive, self.look, self.sync_sets]
        rare = [self.crash, self.come_back, self.come_back, self.hear, self.hear, self.move_leader, self.blink]
        self.chance.choice(steps if self.chance.random() < 0.85 else rare)()
        self.look()

    def produce(self) -> None:
        if self.leader >= 0:
            count = self.chance.randint(1, 3)
            values = [b"%d" % (self.values + number) for number in range(count)]
            self.values += count
            self.led.log.append(batch(*values), self.leader_epoch)

    def flush(self) -> None:
        if self.leader >= 0:
            self.led.log.flush()

    def fetch(self) -> None:
        self.fetch_by(self.nodes[self.chance.choice((1, 2, 3))])

    def fetch_by(self, node: Node) -> None:
        following = node.following
        if following is None or not node.is_up or self.leader < 0:
            return
        following.prepare()
        node.copy.log.flush()
        asked = following.position(CONFIG)
        answer = answer_to(asked, self.led)
        if not answer.error_code and answer.diverging_epoch.end_offset < 0:
            end = self.led.log.next_offset
            self.progress.fetched(node.id, asked.fetch_offset, end, self.now, node.broker_epoch)
        node.late = (following, answer)
        if self.chance.random() < 0.8:
            self.deliver(node)

    def arrive(self) -> None:
        self.deliver(self.nodes[self.chance.choice((1, 2, 3))])

    def deliver(self, node: Node) -> None:
        if node.late is not None and node.is_up:
            following, answer = node.late
            node.late = None
            if node.following is following and following.is_of_now:
                try:
                    take(following, answer)
                except (OutOfRangeError, RefusedError, MisfitError) as error:
                    pytest.fail(f"{error!r} in a history without damage")

    def look(self) -> None:
        if self.leader < 0:
            return
        log, before = self.led.log, self.led.high_watermark
        after = self.progress.high_watermark(before, log.safe_offset, 1)
        assert after >= before
        if after > before:
            self.led.high_watermark = self.nodes[self.leader].copy.high_watermark = after
            for record in read_all(log):
                if record.offset < after:
                    assert self.committed.setdefault(record.offset, record.value) == record.value

    def sync_sets(self) -> None:
        if self.leader >= 0:
            self.alter(self.progress.wants_shrink(self.now, LAG_MS, self.led.log.next_offset))
            self.alter(self.progress.wants_expand(self.led.high_watermark, self.led.log.next_offset))

    def hear(self) -> None:
        if self.leader >= 0:
            self.progress.update((1, 2, 3), self.isr, self.partition_epoch)

    def move_leader(self) -> None:
        if self.leader >= 0:
            self.elect_somebody()

    def lose_memory(self, node: Node) -> None:
        node.disk.crash(self.chance)
        node.copy = Copy(node.open())
        node.copy.leader_epoch = self.leader_epoch
        node.following = node.late = None
        node.broker_epoch += 1

    def crash(self) -> None:
        node = self.nodes[self.chance.choice((1, 2, 3))]
        if node.is_up:
            node.is_up = False
            self.lose_memory(node)
            self.put_out(node.id)

    def blink(self) -> None:
        """A follower dies and is back before anybody has noticed."""
        node = self.nodes[self.chance.choice((1, 2, 3))]
        if node.is_up and node.id != self.leader:
            self.lose_memory(node)
            self.follow(node)

    def come_back(self) -> None:
        node = self.nodes[self.chance.choice((1, 2, 3))]
        if not node.is_up:
            node.is_up = True
            if self.leader < 0:
                self.elect_somebody()
            self.follow(node)

    def follow(self, node: Node) -> None:
        if self.leader >= 0 and node.id != self.leader:
            node.copy.leader_epoch = self.leader_epoch
            node.following = Following(node.copy)

    def heal(self) -> None:
        """Everybody comes back and catches up."""
        for node in self.nodes.values():
            node.is_up = True
        if self.leader < 0:
            self.elect_somebody()
        for node in self.nodes.values():
            self.follow(node)
        self.flush()
        for _ in range(400):
            for node in self.nodes.values():
                self.fetch_by(node)
                self.deliver(node)
            self.hear()
            self.now += REFUSED_PAUSE_MS
            self.sync_sets()
            self.look()
            if self.led.high_watermark == self.led.log.next_offset and len(self.isr) == 3:
                return
        pytest.fail("it does not heal")


@pytest.mark.parametrize("first", range(0, SEEDS, 15))
def test_what_was_shown_is_never_lost(first: int) -> None:
    for seed in range(first, first + 15):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.heal()
        logs = [[(r.offset, r.value) for r in read_all(node.copy.log)] for node in world.nodes.values()]
        assert logs[0] == logs[1] == logs[2], f"seed {seed}"
        assert logs[0] == sorted(world.committed.items()), f"seed {seed}"
