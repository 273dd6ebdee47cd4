"""A broker that is used by gRPC alone: each scenario of MyKafka's and Eeylops' doors, step by step: `make demo-grpc`.

It starts a broker on free ports in a directory that goes with it, shows what it sends and what it gets, and compares
that with what it should get. Exits with 0 if all is right, with 1 if not, with 130 if it was interrupted.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.text import Text

from examples.broker import DemoError, broker
from odradek.client.errors import ClientError
from odradek.client.grpc import Code, Eeylops, EeylopsError, ErrorCodes, MyKafka, MyKafkaError, Offsets, Topic

WAIT_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05
SHOWN_CHARACTERS_MAX = 80
MISSED = 1
INTERRUPTED = 130
# So that the ttl is seen without waiting for long.
SETTINGS = ("--set", "log.retention.check.interval.ms=200ms")

console = Console(highlight=False)


class Steps:
    """Shows each step, and counts those that did not give what they should."""

    def __init__(self) -> None:
        self.done = 0
        self.wrong = 0

    def title(self, text: str) -> None:
        """Begin a scenario."""
        console.print(Text(f"\n{text}", style="bold"), soft_wrap=True)

    def give(self, sent: str, call: Callable[[], object], wanted: object) -> None:
        """Make a call: its result must be the one that is wanted, or its error have the code that is."""
        try:
            found = call()
        except (MyKafkaError, EeylopsError) as error:
            self._show(sent, str(error), is_right=wanted == error.code)
            return
        self._show(sent, found, is_right=found == wanted)

    def hold(self, sent: str, call: Callable[[], object], holds: bool) -> None:
        """Show a result of which more is known than fits a line."""
        self._show(sent, call(), is_right=holds)

    def wait(self, what: str, condition: Callable[[], bool], result: Callable[[], object]) -> None:
        """Wait for something that the broker does by itself."""
        deadline, pause = time.monotonic() + WAIT_SECONDS_MAX, threading.Event()
        while not condition() and time.monotonic() < deadline:
            pause.wait(LOOK_SECONDS)
        self._show(what, result(), is_right=condition())

    def _show(self, sent: str, found: object, *, is_right: bool) -> None:
        self.done += 1
        self.wrong += not is_right
        text = "done" if found is None else str(found)
        if len(text) > SHOWN_CHARACTERS_MAX:
            text = f"{text[:SHOWN_CHARACTERS_MAX]} ..."
        mark = Text("  ok    " if is_right else "  WRONG ", style="green" if is_right else "bold red")
        console.print(mark + Text(sent) + Text(f"  ->  {text}", style="dim"), soft_wrap=True)


def main() -> int:
    """Run the demo and return its exit status."""
    signal.signal(signal.SIGTERM, _interrupt)
    started = time.monotonic()
    steps = Steps()
    try:
        with tempfile.TemporaryDirectory(prefix="odradek-demo-") as temporary:
            directory = Path(temporary)
            with (
                broker(directory, "grpc", SETTINGS) as address,
                MyKafka(address) as mykafka,
                Eeylops(address) as eeylops,
            ):
                console.print(f"A broker is running; its gRPC door is {address}.")
                show_mykafka(steps, mykafka, directory / "broker")
                show_eeylops(steps, eeylops)
                show_both(steps, mykafka, eeylops)
    except KeyboardInterrupt:
        console.print("\ninterrupted; everything is stopped")
        return INTERRUPTED
    except (DemoError, ClientError) as error:
        console.print(Text(str(error), style="red"))
        return MISSED
    console.print(f"\n{steps.done} steps, {steps.wrong} wrong, in {time.monotonic() - started:.0f} s.")
    return MISSED if steps.wrong else 0


# MyKafka


def show_mykafka(steps: Steps, mykafka: MyKafka, directory: Path) -> None:
    """Partitions with settings of their own, and single messages."""
    show_messages(steps, mykafka)
    show_segments(steps, mykafka, directory)
    show_retention(steps, mykafka)
    show_deletion(steps, mykafka)


def show_messages(steps: Steps, mykafka: MyKafka) -> None:
    """Create, send, get, offsets."""
    steps.title("MyKafka: partitions are made one by one, with any number")
    for partition in (0, 34):
        steps.give(
            f"CreatePartition bookstore {partition}", partial(mykafka.create_partition, "bookstore", partition), None
        )
    steps.give("CreatePartition bookstore 0", lambda: mykafka.create_partition("bookstore", 0), Code.TOPIC_ERROR)
    steps.give("CreatePartition a/b 0", lambda: mykafka.create_partition("a/b", 0), Code.INVALID_FILENAME)
    steps.give("GetOffsets bookstore 34", lambda: mykafka.get_offsets("bookstore", 34), Offsets(0, -1, -1))
    steps.title("MyKafka: messages are sent, and read by their offsets")
    for offset, payload in enumerate((b"the castle", b"", bytes(range(4)))):
        steps.give(
            f"SendMessage bookstore 0 {payload!r}", partial(mykafka.send_message, "bookstore", 0, payload), offset
        )
        steps.give(f"GetMessage bookstore 0 {offset}", partial(mykafka.get_message, "bookstore", 0, offset), payload)
    steps.give("GetOffsets bookstore 0", lambda: mykafka.get_offsets("bookstore", 0), Offsets(0, 2, 2))
    steps.give("GetMessage bookstore 0 3", lambda: mykafka.get_message("bookstore", 0, 3), Code.NO_MESSAGE)
    steps.give("GetMessage nothing 0 0", lambda: mykafka.get_message("nothing", 0, 0), Code.NOT_FOUND)


def message(number: int) -> bytes:
    """One of many, of 99 bytes."""
    return (b"message %d " % number).ljust(99, b".")


def show_segments(steps: Steps, mykafka: MyKafka, directory: Path) -> None:
    """Segments roll at their size."""
    steps.title("MyKafka: segments roll at the size that the partition was given")
    mykafka.create_partition("rolling", 0, max_segment_size=2048)
    for number in range(100):
        mykafka.send_message("rolling", 0, message(number))
    files = len(list((directory / "rolling-0").glob("*.log")))
    steps.hold("100 messages into segments of 2048 bytes", lambda: f"{files} segments", 5 <= files <= 15)
    read = [mykafka.get_message("rolling", 0, offset) for offset in range(100)]
    steps.hold(
        "GetMessage rolling 0, offsets 0 to 99", lambda: f"{len(read)} messages", read == list(map(message, range(100)))
    )


def show_retention(steps: Steps, mykafka: MyKafka) -> None:
    """Old segments go, by size and by age."""
    steps.title("MyKafka: old segments go when the partition has more bytes than it may")
    mykafka.create_partition("small", 0, max_segment_size=1024, max_partition_size=4096)
    for number in range(100):
        mykafka.send_message("small", 0, message(number))
    offsets = partial(mykafka.get_offsets, "small", 0)
    steps.wait("100 messages into 4096 bytes", lambda: offsets().first >= 50, offsets)
    steps.give("GetMessage small 0 0", lambda: mykafka.get_message("small", 0, 0), Code.PARTITION_ERROR)
    steps.give("GetMessage small 0 99", lambda: mykafka.get_message("small", 0, 99), message(99))
    steps.title("MyKafka: old segments go when they are older than they may be")
    mykafka.create_partition("brief", 0, max_segment_size=1024, segment_ttl=1)
    for number in range(30):
        mykafka.send_message("brief", 0, message(number))
    offsets = partial(mykafka.get_offsets, "brief", 0)
    steps.wait("30 messages, and a second later", lambda: offsets().first >= 15, offsets)
    steps.give("GetMessage brief 0 29", lambda: mykafka.get_message("brief", 0, 29), message(29))


def show_deletion(steps: Steps, mykafka: MyKafka) -> None:
    """Partitions and topics go; others with similar names stay."""
    steps.title("MyKafka: partitions and topics are removed")
    steps.give("DeletePartition bookstore 34", lambda: mykafka.delete_partition("bookstore", 34), None)
    steps.give("DeletePartition bookstore 34", lambda: mykafka.delete_partition("bookstore", 34), Code.TOPIC_ERROR)
    steps.give("GetMessage bookstore 0 0", lambda: mykafka.get_message("bookstore", 0, 0), b"the castle")
    for name in ("to_delete_topic", "to_delete_topic-0"):
        mykafka.create_partition(name, 0)
    steps.give("DeleteTopic to_delete_topic", lambda: mykafka.delete_topic("to_delete_topic"), None)
    steps.give("DeleteTopic to_delete_topic", lambda: mykafka.delete_topic("to_delete_topic"), None)
    dump = mykafka.broker_info()
    topics = [line.removeprefix("Topic:") for line in dump.splitlines() if line.startswith("Topic:")]
    wanted = {"bookstore", "brief", "rolling", "small", "to_delete_topic-0"}
    steps.hold("BrokerInfo", lambda: " ".join(topics), set(topics) == wanted)
    console.print(Text("\n".join(dump.splitlines()[:8]), style="dim"))


# Eeylops


def show_eeylops(steps: Steps, eeylops: Eeylops) -> None:
    """Topics with numbers, streams of values, consumers that commit."""
    orders = show_topics(steps, eeylops)
    show_values(steps, eeylops, orders)
    show_consumers(steps, eeylops, orders)
    show_subscription(steps, eeylops, orders)


def show_topics(steps: Steps, eeylops: Eeylops) -> Topic:
    """Create, get, remove; ids are never used again."""
    steps.title("Eeylops: topics have numbers, which are never used again")
    orders = eeylops.create_topic("orders", partitions=2, ttl_seconds=3600)
    steps.hold("CreateTopic orders, 2 partitions", lambda: orders, orders.partitions == (1, 2))
    steps.give("CreateTopic orders", lambda: eeylops.create_topic("orders"), ErrorCodes.TOPIC_EXISTS)
    steps.give("CreateTopic no-dash", lambda: eeylops.create_topic("no-dash"), ErrorCodes.INVALID_ARG)
    first = eeylops.create_topic("brief_life")
    steps.give(f"RemoveTopic {first.id}", lambda: eeylops.remove_topic(first), None)
    second = eeylops.create_topic("brief_life")
    steps.hold("CreateTopic brief_life, again", lambda: second, second.id > first.id)
    steps.give(f"Produce to {first.id}", lambda: eeylops.produce(first, 1, [b"x"]), ErrorCodes.TOPIC_NOT_FOUND)
    steps.give("GetTopic orders", lambda: eeylops.get_topic("orders"), orders)
    found = eeylops.get_all_topics()
    steps.hold("GetAllTopics", lambda: f"{len(found)} topics", {orders, second} <= set(found))
    node = eeylops.leader()
    steps.give("GetClusterConfig", lambda: eeylops.cluster_config().nodes, (node,))
    steps.give(f"GetBroker {orders.id} 1", lambda: eeylops.broker_of(orders, 1), node)
    return orders


def show_values(steps: Steps, eeylops: Eeylops, orders: Topic) -> None:
    """Produce and publish; consume by offset and by time."""
    steps.title("Eeylops: values go in by batches and by streams, and come out by offset and by time")
    steps.give("Produce 1 [a, b, c]", lambda: eeylops.produce(orders, 1, [b"a", b"b", b"c"]), None)
    steps.give("Produce 3 [a]", lambda: eeylops.produce(orders, 3, [b"a"]), ErrorCodes.PARTITION_NOT_FOUND)
    batch = eeylops.consume(orders, 1, offset=1)
    values = [value.value for value in batch.values]
    steps.hold("Consume 1 from offset 1", lambda: batch.values, values == [b"b", b"c"] and batch.next_offset == 3)
    with eeylops.publisher(orders, 2) as out:
        for number in range(10_000):
            out.send(b"%d" % number)
    steps.hold("Publish 10,000 values to 2", lambda: f"{out.stored} stored", out.stored == 10_000)
    last = batch.values[-1].timestamp
    pause = threading.Event()
    while time.time_ns() // 1_000_000 <= last:
        pause.wait(0.001)
    eeylops.produce(orders, 1, [b"later"])
    by_time = [value.value for value in eeylops.consume(orders, 1, since_ms=last + 1).values]
    steps.hold(f"Consume 1 since {last + 1}", lambda: by_time, by_time == [b"later"])
    until = [value.value for value in eeylops.consume(orders, 1, since_ms=0, until_ms=last + 1).values]
    steps.hold(f"Consume 1 until {last + 1}", lambda: until, until == [b"a", b"b", b"c"])


def show_consumers(steps: Steps, eeylops: Eeylops, orders: Topic) -> None:
    """Register, commit, resume."""
    steps.title("Eeylops: consumers register, commit, and go on where they were")
    not_registered = ErrorCodes.CONSUMER_NOT_REGISTERED
    steps.give("Commit billing 1, offset 2", lambda: eeylops.commit("billing", orders, 1, 2), not_registered)
    steps.give("RegisterConsumer billing 1", lambda: eeylops.register("billing", orders, 1), None)
    steps.give("GetLastCommitted billing 1", lambda: eeylops.last_committed("billing", orders, 1), -1)
    for offset in (3, 2):
        steps.give(f"Commit billing 1, offset {offset}", partial(eeylops.commit, "billing", orders, 1, offset), None)
    steps.give("RegisterConsumer billing 1", lambda: eeylops.register("billing", orders, 1), None)
    steps.give("GetLastCommitted billing 1", lambda: eeylops.last_committed("billing", orders, 1), 2)
    batch = eeylops.consume(orders, 1, consumer="billing", auto_commit=True)
    resumed = [value.value for value in batch.values]
    steps.hold("Consume 1 as billing, committing", lambda: resumed, resumed == [b"c", b"later"])
    steps.give("GetLastCommitted billing 1", lambda: eeylops.last_committed("billing", orders, 1), 4)


def show_subscription(steps: Steps, eeylops: Eeylops, orders: Topic) -> None:
    """Follow the head, and resume."""
    steps.title("Eeylops: a subscription follows what comes, and one with the same name goes on behind it")
    seen: list[bytes] = []
    for value in eeylops.subscribe(orders, 2, consumer="shipping", auto_commit=True):
        seen.append(value.value)
        if len(seen) == 10_000:
            eeylops.produce(orders, 2, [b"just now"])
        if value.value == b"just now":
            break
    wanted = [*(b"%d" % number for number in range(10_000)), b"just now"]
    steps.hold("Subscribe 2 as shipping, producing meanwhile", lambda: f"{len(seen)} values", seen == wanted)
    again = next(eeylops.subscribe(orders, 2, consumer="shipping"))
    text = "at least once: the value at which the loop was left comes again"
    steps.hold(text, lambda: again.value, again.value == b"just now")


def show_both(steps: Steps, mykafka: MyKafka, eeylops: Eeylops) -> None:
    """The same log behind both doors."""
    steps.title("Both doors open on the same logs: partition 0 here is partition 1 there")
    topic = eeylops.get_topic("bookstore")
    values = [value.value for value in eeylops.consume(topic, 1).values]
    steps.hold("Consume of what MyKafka sent", lambda: values, values == [b"the castle", b"", bytes(range(4))])
    eeylops.produce(topic, 1, [b"the trial"])
    steps.give("GetMessage of what Eeylops produced", lambda: mykafka.get_message("bookstore", 0, 3), b"the trial")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
