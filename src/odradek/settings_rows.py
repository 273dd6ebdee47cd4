"""The rows of the table of settings: one for everything that can be told to a broker or to a topic.

What a row means and how its values are read stands in `odradek.settings_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from odradek.settings_grpc import GRPC_ROWS
from odradek.settings_objects import OBJECT_BROKER_ROWS, OBJECT_TOPIC_ROWS
from odradek.settings_table import (
    DAY_MS,
    GIB,
    HOUR_MS,
    INT_MAX,
    KIB,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    SECOND_MS,
    TIB,
    Kind,
    Setting,
)

_UNLIMITED = (-1, "unlimited")

_TOPIC_ROWS = (
    Setting(
        "segment.bytes", "topic", Kind.SIZE, GIB,
        "A segment file that reaches this size is closed and a new one begun; retention and compaction work on "
        "closed segments only.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "segment.backend", "topic", Kind.CHOICE, "file",
        "Where the segments of partitions that are made from now on live: `file` (Kafka's files), `sqlite` (a database "
        "a segment, which sqlite3 can query) or `rocksdb`. `odradek log convert` moves a partition that is there.",
        choices=("file", "sqlite", "rocksdb"),
    ),
    Setting(
        "segment.records.max", "topic", Kind.COUNT, 1_000_000,
        "A segment of `sqlite` or `rocksdb` that holds so many records is closed and a new one begun; a file is not "
        "bound by it.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "segment.ms", "topic", Kind.DURATION, 7 * DAY_MS,
        "A segment of this age is closed even if it is not full, so that retention and compaction can reach its "
        "records.",
        low=1,
    ),
    Setting(
        "segment.index.bytes", "topic", Kind.SIZE, 10 * MIB,
        "A segment whose offset index reaches this size is closed.",
        low=4, high=INT_MAX,
    ),
    Setting(
        "index.interval.bytes", "topic", Kind.SIZE, 4 * KIB,
        "An index entry is written after this many bytes of records: fewer bytes make reads start nearer to their "
        "offset, and the index larger.",
        high=INT_MAX,
    ),
    Setting(
        "retention.bytes", "topic", Kind.SIZE, -1,
        "The oldest closed segments of a partition are deleted while what remains is still at least this large.",
        special=_UNLIMITED,
    ),
    Setting(
        "retention.ms", "topic", Kind.DURATION, 7 * DAY_MS,
        "A closed segment is deleted when its newest record is older than this.",
        special=_UNLIMITED,
    ),
    Setting(
        "cleanup.policy", "topic", Kind.CHOICES, frozenset({"delete"}),
        "What happens to old records: `delete` drops whole segments by age and size, `compact` keeps the last "
        "record of each key.",
        choices=("delete", "compact"),
    ),
    Setting(
        "delete.retention.ms", "topic", Kind.DURATION, DAY_MS,
        "A compacted topic keeps a deletion marker (a record without a value) at least this long, so that readers "
        "have time to see it.",
    ),
    Setting(
        "min.cleanable.dirty.ratio", "topic", Kind.RATIO, 0.5,
        "A partition is compacted when at least this share of its bytes has not been compacted yet.",
        low=0, high=1,
    ),
    Setting(
        "min.compaction.lag.ms", "topic", Kind.DURATION, 0,
        "A record younger than this is never compacted away.",
    ),
    Setting(
        "max.compaction.lag.ms", "topic", Kind.DURATION, LONG_MAX,
        "A record that has waited this long is compacted whatever the dirty ratio is.",
        low=1, special=(LONG_MAX, "unlimited"),
    ),
    Setting(
        "max.message.bytes", "topic", Kind.SIZE, MIB + 12,
        "A record batch larger than this, as it is sent and so after compression, is refused.",
        high=INT_MAX,
    ),
    Setting(
        "message.timestamp.type", "topic", Kind.CHOICE, "CreateTime",
        "Whose time a record carries: the producer's (`CreateTime`) or that of its arrival (`LogAppendTime`).",
        choices=("CreateTime", "LogAppendTime"),
    ),
    Setting(
        "flush", "topic", Kind.CHOICE, "group",
        "When a record counts as written: after an fdatasync shared by all that arrived meanwhile (`group`), or at "
        "once, trusting the replicas (`replicated`) or the operating system (`os`).",
        choices=("group", "replicated", "os"),
    ),
    Setting(
        "min.insync.replicas", "topic", Kind.COUNT, 1,
        "A producer that asks for acks=all is refused while fewer replicas than this are in sync; a broker that stands "
        "alone is one.",
        low=1, high=INT_MAX,
    ),
)  # fmt: skip

_LOG_ROWS = (
    Setting(
        "dir", "broker", Kind.PATH, "~/.odradek",
        "The data directory: one folder a partition.",
        environment_too=("ODRADEK_DATA",), flag="--data",
    ),
    Setting(
        "log.open.files.max", "broker", Kind.COUNT, 0,
        "Segment files held open at once, beyond which the least recently used one is closed; automatic is three "
        "quarters of what the process may open.",
        low=1, high=INT_MAX, special=(0, "automatic"),
    ),
    Setting(
        "log.index.cache.bytes", "broker", Kind.SIZE, 64 * MIB,
        "Memory for the indexes of segments that are being read.",
        low=64 * KIB, high=TIB,
    ),
    Setting(
        "log.flush.threads", "broker", Kind.COUNT, 4,
        "Threads that run fdatasync: as many partitions can be flushed at the same time.",
        low=1, high=256,
    ),
    Setting(
        "log.checkpoint.interval.ms", "broker", Kind.DURATION, 5 * SECOND_MS,
        "How often index entries and producers that are only in memory are written out, so that a start after a crash "
        "has less to read.",
        low=100, high=HOUR_MS,
    ),
    Setting(
        "log.cleaner.key.map.bytes", "broker", Kind.SIZE, 128 * MIB,
        "Memory in which compaction remembers the last offset of each key; with less of it a pass covers fewer "
        "records.",
        low=64 * KIB, high=TIB,
    ),
    Setting(
        "producer.id.expiration.ms", "broker", Kind.DURATION, DAY_MS,
        "A partition forgets an idempotent producer that has sent nothing for this long.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "producer.ids.max", "broker", Kind.COUNT, 10_000,
        "Idempotent producers that one partition remembers; beyond it the one that has been silent longest is "
        "forgotten.",
        low=1, high=INT_MAX,
    ),
)  # fmt: skip

_DOOR_ROWS = (
    Setting(
        "kafka", "broker", Kind.ADDRESS, "127.0.0.1:9092",
        "Where Kafka clients connect; port 0 takes any free one, and without a host every address of the machine.",
        choices=("off",), flag="--kafka",
    ),
    Setting(
        "advertised.kafka", "broker", Kind.ADDRESS, "auto",
        "The address that Kafka clients are told to use, where it differs from the one that is listened on: behind a "
        "proxy, in a container.",
        choices=("auto",),
    ),
    Setting(
        "http", "broker", Kind.ADDRESS, "127.0.0.1:8080",
        "Where `GET /metrics`, `GET /healthcheck`, the REST routes (Katar's, RAMA's and SSKafka's; `/docs` shows them) "
        "and the other brokers are answered.",
        choices=("off",), flag="--http",
    ),
    Setting(
        "advertised.http", "broker", Kind.ADDRESS, "auto",
        "The address at which the other brokers reach this one's HTTP door, where it differs from the one that is "
        "listened on and from its entry in `voters`.",
        choices=("auto",),
    ),
    Setting(
        "socket.request.max.bytes", "broker", Kind.SIZE, 100 * MIB,
        "A connection that announces a larger request is closed.",
        low=64 * KIB, high=INT_MAX,
    ),
    Setting(
        "socket.first.request.max.bytes", "broker", Kind.SIZE, 512 * KIB,
        "The same bound before a client has sent its first request that is understood.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "socket.frame.timeout.ms", "broker", Kind.DURATION, 30 * SECOND_MS,
        "A request that has begun must arrive in full within this time.",
        low=100, high=HOUR_MS,
    ),
    Setting(
        "socket.stall.timeout.ms", "broker", Kind.DURATION, 60 * SECOND_MS,
        "A client that does not read its answers for this long is let go.",
        low=100, high=HOUR_MS,
    ),
    Setting(
        "connections.max.idle.ms", "broker", Kind.DURATION, 10 * MINUTE_MS,
        "A connection without a request for this long is closed.",
        low=SECOND_MS,
    ),
    Setting(
        "max.connections.per.broker", "broker", Kind.COUNT, 10_000,
        "Connections of Kafka clients at the same time; more are closed at once.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "max.connections.per.ip", "broker", Kind.COUNT, 5_000,
        "Connections from one address at the same time; more are closed at once.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "connection.requests.max", "broker", Kind.COUNT, 1_000,
        "Requests of one connection that are not answered yet; it is not read from until there are fewer.",
        low=1, high=1_000_000,
    ),
    Setting(
        "connection.queued.max.bytes", "broker", Kind.SIZE, MIB,
        "Answers that one client has not read; its next request waits until there are fewer.",
        low=4 * KIB, high=GIB,
    ),
    Setting(
        "queued.answers.max.bytes", "broker", Kind.SIZE, 128 * MIB,
        "Answers that all slow clients together have not read; beyond it a fetch gets no more than one batch.",
        low=MIB, high=TIB,
    ),
    Setting(
        "log.level", "broker", Kind.CHOICE, "info",
        "How much the broker tells in `odradek.log` and on standard error.",
        choices=("debug", "info", "warning", "error"), flag="--log-level",
    ),
)  # fmt: skip

_BROKER_ROWS = (
    Setting(
        "broker.id", "broker", Kind.COUNT, 1,
        "The number by which clients know this broker.",
        high=INT_MAX, flag="--broker-id",
    ),
    Setting(
        "auto.create.topics.enable", "broker", Kind.BOOLEAN, True,
        "A topic that a client asks for and that does not exist is made.",
    ),
    Setting(
        "num.partitions", "broker", Kind.COUNT, 1,
        "Partitions of a topic that is made without saying how many.",
        low=1, high=100_000,
    ),
    Setting(
        "partitions.max", "broker", Kind.COUNT, 20_000,
        "Partitions of all topics together; more are refused.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "delete.topic.enable", "broker", Kind.BOOLEAN, True,
        "Whether clients may delete topics.",
    ),
    Setting(
        "fetch.max.bytes", "broker", Kind.SIZE, 16 * MIB,
        "Bytes of records in one answer, whatever the client asks for; a single larger batch is sent all the same.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots", "broker", Kind.COUNT, 1_000,
        "Fetch sessions (KIP-227) that are remembered; clients beyond it fetch without one.",
        high=1_000_000,
    ),
    Setting(
        "request.decompressed.max.bytes", "broker", Kind.SIZE, 64 * MIB,
        "Compressed batches of one Produce request that grow beyond this together, decompressed, are refused.",
        low=MIB, high=INT_MAX,
    ),
    Setting(
        "request.records.max", "broker", Kind.COUNT, 1_000_000,
        "Records of all batches of one Produce request; more are refused.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "log.retention.check.interval.ms", "broker", Kind.DURATION, 30 * SECOND_MS,
        "How often partitions are looked through for segments that are old or many enough to be deleted.",
        low=10, high=DAY_MS,
    ),
    Setting(
        "log.cleaner.backoff.ms", "broker", Kind.DURATION, 15 * SECOND_MS,
        "How often compacted partitions are looked through for something to clean.",
        low=10, high=DAY_MS,
    ),
    Setting(
        "offsets.topic.num.partitions", "broker", Kind.COUNT, 8,
        "Partitions of `__consumer_offsets`, when it is made.",
        low=1, high=1_000,
    ),
    Setting(
        "offsets.topic.segment.bytes", "broker", Kind.SIZE, 16 * MIB,
        "The segment size of `__consumer_offsets`: small, so that compaction can keep it short.",
        low=KIB, high=INT_MAX,
    ),
)  # fmt: skip

_CLUSTER_ROWS = (
    Setting(
        "voters", "broker", Kind.VOTERS, "",
        "The brokers that keep the cluster's metadata, each with the address of its HTTP door; the same list at every "
        "broker. Without it the broker stands alone; one that is not in the list joins without a vote.",
        flag="--voters",
    ),
    Setting(
        "rack", "broker", Kind.TEXT, "",
        "Where this broker stands: replicas are spread over racks, and consumers of the same rack may read here "
        "(KIP-392).",
    ),
    Setting(
        "cluster.secret.file", "broker", Kind.PATH, "",
        "A file with a secret that brokers show each other; without it anybody who reaches their ports can pose as "
        "one. The environment variable ODRADEK_CLUSTER_SECRET may carry the secret itself instead.",
    ),
    Setting(
        "controller.quorum.election.timeout.ms", "broker", Kind.DURATION, SECOND_MS,
        "How long a voter waits, at most doubled by chance, before it tries to lead the metadata again.",
        low=10, high=MINUTE_MS,
    ),
    Setting(
        "controller.quorum.fetch.timeout.ms", "broker", Kind.DURATION, 2 * SECOND_MS,
        "A voter that hears nothing from the leader of the metadata for this long tries to replace it, and a leader "
        "that a majority does not ask for half as long again resigns.",
        low=100, high=MINUTE_MS,
    ),
    Setting(
        "broker.heartbeat.interval.ms", "broker", Kind.DURATION, 500,
        "How often a broker tells the controller that it is alive.",
        low=10, high=MINUTE_MS,
    ),
    Setting(
        "broker.session.timeout.ms", "broker", Kind.DURATION, 3 * SECOND_MS,
        "A broker that is silent for this long loses its leaderships; one that hears nothing from the controller for "
        "as long takes no more records. A process that ends is noticed at once.",
        low=100, high=10 * MINUTE_MS,
    ),
    Setting(
        "default.replication.factor", "broker", Kind.COUNT, 0,
        "Replicas of a topic that is made without saying how many; automatic is three, or as many as there are brokers "
        "if these are fewer.",
        low=1, high=32_767, special=(0, "automatic"),
    ),
    Setting(
        "offsets.topic.replication.factor", "broker", Kind.COUNT, 0,
        "Replicas of `__consumer_offsets`, when it is made; automatic as above.",
        low=1, high=32_767, special=(0, "automatic"),
    ),
    Setting(
        "replica.lag.time.max.ms", "broker", Kind.DURATION, 5 * SECOND_MS,
        "A follower that has not caught up for this long is no longer waited for: it leaves the in-sync replicas.",
        low=100, high=DAY_MS,
    ),
    Setting(
        "replica.fetch.max.bytes", "broker", Kind.SIZE, MIB,
        "Bytes that a follower asks for of one partition at once.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "replica.fetch.response.max.bytes", "broker", Kind.SIZE, 10 * MIB,
        "Bytes that a follower asks for of all partitions of one leader at once.",
        low=KIB, high=INT_MAX,
    ),
    Setting(
        "replica.fetch.wait.max.ms", "broker", Kind.DURATION, 500,
        "How long a leader may let a follower wait for news.",
        low=1, high=MINUTE_MS,
    ),
    Setting(
        "replication.throttle.bytes", "broker", Kind.SIZE, 0,
        "Bytes a second at which a broker copies partitions that are being moved to it; live replication is not "
        "counted.",
        low=KIB, special=(0, "unlimited"),
    ),
    Setting(
        "leader.rebalance.interval.ms", "broker", Kind.DURATION, 5 * MINUTE_MS,
        "How often leadership goes back to the first replica of each partition; 0 leaves that to `odradek cluster "
        "elect`.",
        low=SECOND_MS, high=7 * DAY_MS, special=(0, "never"),
    ),
    Setting(
        "metadata.snapshot.interval.ms", "broker", Kind.DURATION, HOUR_MS,
        "How often the metadata is written as a whole and its log cut, if it has changed.",
        low=SECOND_MS, high=7 * DAY_MS,
    ),
    Setting(
        "metadata.snapshot.bytes", "broker", Kind.SIZE, 20 * MIB,
        "The same after this many bytes of changes.",
        low=KIB, high=TIB,
    ),
    Setting(
        "controlled.shutdown.timeout.ms", "broker", Kind.DURATION, 10 * SECOND_MS,
        "How long a broker that is told to stop waits for others to take over what it leads.",
        low=0, high=10 * MINUTE_MS,
    ),
)  # fmt: skip

_GROUP_ROWS = (
    Setting(
        "group.min.session.timeout.ms", "broker", Kind.DURATION, 6 * SECOND_MS,
        "The shortest time without a heartbeat that a member of a classic group may ask for.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "group.max.session.timeout.ms", "broker", Kind.DURATION, 30 * MINUTE_MS,
        "The longest such time.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "group.initial.rebalance.delay.ms", "broker", Kind.DURATION, 100,
        "How long the first member of an empty classic group waits for others, so that they share one rebalance.",
        high=HOUR_MS,
    ),
    Setting(
        "group.max.size", "broker", Kind.COUNT, 10_000,
        "Members of one classic group; more are refused.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "offset.metadata.max.bytes", "broker", Kind.SIZE, 4 * KIB,
        "The longest text that a consumer may keep beside an offset that it commits.",
        high=MIB,
    ),
    Setting(
        "offsets.retention.minutes", "broker", Kind.COUNT, 7 * 24 * 60,
        "Offsets of a group without members are forgotten after so many minutes.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "offsets.retention.check.interval.ms", "broker", Kind.DURATION, 10 * MINUTE_MS,
        "How often groups are looked through for such offsets.",
        low=10, high=DAY_MS,
    ),
    Setting(
        "group.consumer.session.timeout.ms", "broker", Kind.DURATION, 45 * SECOND_MS,
        "A member of a group of the consumer protocol (KIP-848) that sends no heartbeat for this long is removed.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms", "broker", Kind.DURATION, 5 * SECOND_MS,
        "How often members of such a group are told to send heartbeats.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "group.consumer.max.size", "broker", Kind.COUNT, 10_000,
        "Members of one such group; more are refused.",
        low=1, high=INT_MAX,
    ),
    Setting(
        "group.consumer.assignors", "broker", Kind.CHOICES, frozenset({"uniform", "range"}),
        "Which assignors members of such a group may choose; without a choice it is `uniform` if that is among them.",
        choices=("uniform", "range"),
    ),
)  # fmt: skip

SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for setting in (
            *_TOPIC_ROWS,
            *OBJECT_TOPIC_ROWS,
            *_DOOR_ROWS,
            *GRPC_ROWS,
            *_BROKER_ROWS,
            *_CLUSTER_ROWS,
            *_GROUP_ROWS,
            *OBJECT_BROKER_ROWS,
            *_LOG_ROWS,
        )
    }
)
