"""What `GET /metrics` answers: the broker's counters in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic

from odradek.broker.broker import Broker
from odradek.broker.channels import ChannelGauge
from odradek.edge.grpc.stats import CallStats
from odradek.edge.routing import Page
from odradek.groups.coordinator import Coordinator
from odradek.metrics import DoorStats, Histogram
from odradek.model import SINK_GROUPS

_KEPT_SECONDS = 1.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def metrics_page(
    broker: Broker,
    groups: Coordinator,
    door: DoorStats,
    channels: Sequence[ChannelGauge] = (),
    calls: CallStats | None = None,
) -> Page:
    """All counters as they are now."""
    lines = [*_door(door), *_flushes(broker), *_partitions(broker), *_cluster(broker), *_groups(broker, groups)]
    lines += _channels(channels)
    if calls is not None:
        lines += _calls(calls)
    return Page(("\n".join(lines) + "\n").encode(), _CONTENT_TYPE)


class MetricsPage:
    """The page as it was at most a second ago: whoever asks all the time does not keep the broker from its work."""

    def __init__(
        self,
        broker: Broker,
        groups: Coordinator,
        door: DoorStats,
        now: Callable[[], float] = monotonic,
        channels: Callable[[], Sequence[ChannelGauge]] = tuple,
        calls: CallStats | None = None,
    ) -> None:
        self._parts = (broker, groups, door)
        self._channels = channels
        self._calls = calls
        self._now = now
        self._made_at = 0.0
        self._page: Page | None = None

    def __call__(self) -> Page:
        """Give the page, or make it anew."""
        now = self._now()
        if self._page is None or now - self._made_at >= _KEPT_SECONDS:
            self._page, self._made_at = metrics_page(*self._parts, self._channels(), self._calls), now
        return self._page


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"


def _labels(**labels: object) -> str:
    inner = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}"


def _single(name: str, kind: str, text: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, text)
    yield f"{name} {value}"


def _door(door: DoorStats) -> Iterator[str]:
    yield from _single("odradek_connections", "gauge", "Connections of Kafka clients that are open.", door.connections)
    for name, text, value in (
        ("accepted", "Connections of Kafka clients since the start.", door.connections_accepted),
        ("refused", "Connections refused because there were too many.", door.connections_refused),
        ("dropped", "Connections ended for breaking the protocol, stalling or idling.", door.connections_dropped),
    ):
        yield from _single(f"odradek_connections_{name}_total", "counter", text, value)
    apis = sorted(door.apis.items())
    yield from _head("odradek_request_bytes_total", "counter", "Bytes of requests by API.")
    yield from (f"odradek_request_bytes_total{_labels(api=name)} {api.request_bytes}" for name, api in apis)
    yield from _head("odradek_response_bytes_total", "counter", "Bytes of answers by API.")
    yield from (f"odradek_response_bytes_total{_labels(api=name)} {api.response_bytes}" for name, api in apis)
    yield from _head("odradek_request_errors_total", "counter", "Requests that met a bug, by API.")
    yield from (f"odradek_request_errors_total{_labels(api=name)} {api.errors}" for name, api in apis)
    yield from _head("odradek_request_seconds", "histogram", "From a whole request to its answer, by API.")
    for name, api in apis:
        yield from _histogram("odradek_request_seconds", api.latency, api=name)


def _histogram(name: str, histogram: Histogram, **labels: object) -> Iterator[str]:
    total = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        total += count
        yield f"{name}_bucket{_labels(**labels, le=bound)} {total}"
    yield f"{name}_sum{_labels(**labels)} {histogram.total}"
    yield f"{name}_count{_labels(**labels)} {total}"


def _flushes(broker: Broker) -> Iterator[str]:
    stats = broker.store.flush_stats()
    for name, text, value in (
        ("odradek_flushes_total", "Flushes to stable storage.", stats.flushes),
        ("odradek_flushed_batches_total", "Record batches that these made safe.", stats.batches),
        ("odradek_flushed_bytes_total", "Bytes that these made safe.", stats.size_bytes),
        ("odradek_flush_seconds_total", "Time that flushes took.", stats.seconds),
    ):
        yield from _single(name, "counter", text, value)
    yield from _single("odradek_flush_seconds_max", "gauge", "The longest flush since the start.", stats.seconds_max)


def _partitions(broker: Broker) -> Iterator[str]:
    partitions = [partition for topic in broker.topics.values() for partition in topic.partitions.values()]
    yield from _single("odradek_partitions", "gauge", "Partitions that are served.", len(partitions))
    offline = len(broker.store.offline)
    yield from _single("odradek_partitions_offline", "gauge", "Partitions whose files are damaged.", offline)
    for name, text in (
        ("start_offset", "The first offset of a partition."),
        ("high_watermark", "The offset behind the last record that can be read."),
        ("size_bytes", "The bytes of a partition's records."),
    ):
        yield from _head(f"odradek_partition_{name}", "gauge", text)
        for partition in partitions:
            value = {
                "start_offset": partition.log_start,
                "high_watermark": partition.high_watermark,
                "size_bytes": partition.log.size_bytes,
            }[name]
            yield f"odradek_partition_{name}{_labels(topic=partition.topic.name, partition=partition.index)} {value}"


def _cluster(broker: Broker) -> Iterator[str]:
    quorum, partitions = broker.metadata.quorum, [p for t in broker.topics.values() for p in t.partitions.values()]
    led = [partition for partition in partitions if partition.is_leader]
    lacking = sum(len(partition.role.isr) < len(partition.role.replicas) for partition in led)
    for name, text, value in (
        ("partitions_led", "Partitions that this broker leads.", len(led)),
        ("partitions_under_replicated", "Of these, the ones with a replica that is not in sync.", lacking),
        ("fenced", "1 if this broker has not been heard of by the controller for too long.", int(broker.is_fenced)),
        ("controller_active", "1 if this broker is the active controller.", int(broker.metadata.is_active)),
        ("quorum_leader", "The leader of the metadata; -1 if none is known.", quorum.leader_id),
        ("quorum_epoch", "Its term.", quorum.epoch),
        ("quorum_high_watermark", "The offset behind the last change that a majority has.", quorum.high_watermark),
    ):
        yield from _single(f"odradek_{name}", "gauge", text, value)


def _groups(broker: Broker, groups: Coordinator) -> Iterator[str]:
    yield from _single("odradek_groups", "gauge", "Consumer groups.", len(groups.groups))
    committed = list(_committed(broker, groups))
    for name, text in (
        ("lag", "Records that a group has not committed yet."),
        ("committed_offset", "The offset that a group has committed; its rate is how fast the group gets on."),
    ):
        yield from _head(f"odradek_group_{name}", "gauge", text)
        for labels, offset, lag in committed:
            yield f"odradek_group_{name}{labels} {lag if name == 'lag' else offset}"


def _channels(channels: Sequence[ChannelGauge]) -> Iterator[str]:
    """What waits for the object stores of channels; nothing where there are none."""
    if not channels:
        return
    for name, kind, text in (
        ("behind_bytes", "gauge", "Bytes of a channel's log that are not in its store yet."),
        ("behind_seconds", "gauge", "For how long something has been due that is not in the store."),
        ("away_seconds", "gauge", "For how long the store has not answered; 0 if it does."),
        ("objects", "counter", "Objects that were put into the store since this broker leads the partition."),
        ("failures", "counter", "Attempts to do so that failed."),
    ):
        metric = f"odradek_channel_{name}{'_total' if kind == 'counter' else ''}"
        yield from _head(metric, kind, text)
        for each in channels:
            yield f"{metric}{_labels(topic=each.topic, partition=each.partition)} {getattr(each, name)}"


def _calls(stats: CallStats) -> Iterator[str]:
    """What the gRPC door has done; nothing where it is off."""
    yield from _single("odradek_grpc_calls_open", "gauge", "gRPC calls under way, streams included.", stats.open)
    text = "Bytes of gRPC requests since the start."
    yield from _single("odradek_grpc_request_bytes_total", "counter", text, stats.request_bytes)
    yield from _head("odradek_grpc_calls_total", "counter", "gRPC calls that have ended, by method and code.")
    for (method, code), count in sorted(stats.calls.items()):
        yield f"odradek_grpc_calls_total{_labels(method=method, code=code)} {count}"


def _committed(broker: Broker, groups: Coordinator) -> Iterator[tuple[str, int, int]]:
    """What groups have committed in partitions that exist: labels, offset, lag."""
    for group_id in groups.groups:
        if group_id.startswith(SINK_GROUPS):
            continue  # these note where a write began; nobody reads on from there
        offsets = groups.offsets.of(group_id)
        for topic_name, committed in offsets.by_topic().items() if offsets is not None else ():
            topic = broker.topics.get(topic_name)
            for index, (offset, *_) in committed.items():
                partition = None if topic is None else topic.partitions.get(index)
                if partition is not None:
                    lag = max(partition.high_watermark - max(offset, partition.log_start), 0)
                    yield _labels(group=group_id, topic=topic_name, partition=index), offset, lag
