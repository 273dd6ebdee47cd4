"""The settings in force: defaults < file (TOML) < `ODRADEK_*` environment < flags.

What settings there are stands in `odradek.settings_table`; this module collects their values, remembers where each
came from, refuses what is wrong, and makes the typed objects (`LogConfig`, `StoreConfig`) that the parts read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias, cast

from odradek.broker.config import BrokerConfig
from odradek.broker.objects_config import ObjectsConfig, TopicObjects
from odradek.controller.config import ControllerConfig, QuorumConfig
from odradek.edge.config import GrpcDoorConfig, KafkaDoorConfig
from odradek.groups.config import GroupConfig
from odradek.log.config import Flush, LogConfig, StoreConfig
from odradek.replication.config import ReplicationConfig
from odradek.settings_objects import contradiction
from odradek.settings_rows import SETTINGS
from odradek.settings_table import (
    ENVIRONMENT_PREFIX,
    Kind,
    Scope,
    Setting,
    SettingError,
    Value,
    shown,
    split_address,
    split_voters,
)

__all__ = [
    "CONFIG_VARIABLE",
    "SETTINGS",
    "Kind",
    "Scope",
    "Setting",
    "SettingError",
    "Settings",
    "Value",
    "default_settings",
    "find_setting",
    "load_settings",
    "parse_topic_overrides",
]

CONFIG_VARIABLE = "ODRADEK_CONFIG"
SECRET_VARIABLE = "ODRADEK_CLUSTER_SECRET"
_VARIABLES_OF_OTHERS = frozenset(
    {CONFIG_VARIABLE, SECRET_VARIABLE, "ODRADEK_BROKER", "ODRADEK_CLIENT_KEY", "ODRADEK_REST", "ODRADEK_TEST_PROFILE"}
)

_QUORUM_FETCH_WAIT_MS = 500  # how long a leader of the metadata holds a request that has nothing new

_BY_VARIABLE = {variable: setting for setting in SETTINGS.values() for variable in setting.environment}
_BY_FLAG = {setting.flag: setting for setting in SETTINGS.values() if setting.flag is not None}

_DEFAULT = "default"
_OBJECTS_FOLDER = "objects"
_TOPIC = "topic"
_NOTHING: Mapping[str, object] = MappingProxyType({})

# What one source gave: a setting's name, its raw value, and the words that say where it stood.
_Given: TypeAlias = tuple[str, object, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting's value and where it came from; made by `load_settings`, never changed."""

    values: Mapping[str, Value]  # exactly the names of SETTINGS
    sources: Mapping[str, str]  # exactly the names of SETTINGS
    secret: str | None = None  # the cluster's, if the environment has it; it is shown nowhere

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def source(self, name: str) -> str:
        """Say where a value came from: `default`, a file, an environment variable or a flag."""
        return self.sources[name]

    @property
    def directory(self) -> Path:
        """The data directory, with `~` replaced by the home directory."""
        try:
            return Path(self._text("dir")).expanduser()
        except RuntimeError as error:
            raise SettingError(
                f"dir = {shown(self['dir'])} ({self.source('dir')}) needs a home directory and there is none: "
                "name a whole path"
            ) from error

    def log_config(self, overrides: Mapping[str, object] = _NOTHING) -> LogConfig:
        """Make what the logs of one topic read; `overrides` are the topic's own settings."""
        own = self.with_overrides(overrides) if overrides else self
        objects = TopicObjects.of(own.values)
        is_archived = objects.remote_storage_enable  # the rest of what is to be kept is in the object store
        return LogConfig(
            segment_bytes=own._integer("segment.bytes"),
            segment_backend=cast("Literal['file', 'sqlite', 'rocksdb']", own["segment.backend"]),
            segment_records_max=own._integer("segment.records.max"),
            segment_ms=own._integer("segment.ms"),
            segment_index_bytes=own._integer("segment.index.bytes"),
            index_interval_bytes=own._integer("index.interval.bytes"),
            retention_bytes=objects.local_retention_bytes if is_archived else own._integer("retention.bytes"),
            retention_ms=objects.local_retention_ms if is_archived else own._integer("retention.ms"),
            cleanup_policy=cast("frozenset[Literal['delete', 'compact']]", own["cleanup.policy"]),
            delete_retention_ms=own._integer("delete.retention.ms"),
            min_cleanable_dirty_ratio=cast("float", own["min.cleanable.dirty.ratio"]),
            min_compaction_lag_ms=own._integer("min.compaction.lag.ms"),
            max_compaction_lag_ms=own._integer("max.compaction.lag.ms"),
            max_message_bytes=own._integer("max.message.bytes"),
            message_timestamp_type=cast("Literal['CreateTime', 'LogAppendTime']", own["message.timestamp.type"]),
            flush=Flush(own["flush"]),
        )

    def store_config(self) -> StoreConfig:
        """Make what all logs of the data directory share."""
        return StoreConfig(
            log_open_files_max=self._integer("log.open.files.max"),
            log_index_cache_bytes=self._integer("log.index.cache.bytes"),
            log_flush_threads=self._integer("log.flush.threads"),
            log_checkpoint_interval_ms=self._integer("log.checkpoint.interval.ms"),
            log_cleaner_key_map_bytes=self._integer("log.cleaner.key.map.bytes"),
            producer_id_expiration_ms=self._integer("producer.id.expiration.ms"),
            producer_ids_max=self._integer("producer.ids.max"),
        )

    def broker_config(self) -> BrokerConfig:
        """Make what the broker's core reads."""
        return BrokerConfig(
            broker_id=self._integer("broker.id"),
            auto_create_topics_enable=bool(self["auto.create.topics.enable"]),
            num_partitions=self._integer("num.partitions"),
            partitions_max=self._integer("partitions.max"),
            delete_topic_enable=bool(self["delete.topic.enable"]),
            fetch_max_bytes=self._integer("fetch.max.bytes"),
            max_incremental_fetch_session_cache_slots=self._integer("max.incremental.fetch.session.cache.slots"),
            request_decompressed_max_bytes=self._integer("request.decompressed.max.bytes"),
            request_records_max=self._integer("request.records.max"),
            log_retention_check_interval_ms=self._integer("log.retention.check.interval.ms"),
            log_cleaner_backoff_ms=self._integer("log.cleaner.backoff.ms"),
            offsets_topic_num_partitions=self._integer("offsets.topic.num.partitions"),
            offsets_topic_segment_bytes=self._integer("offsets.topic.segment.bytes"),
            offsets_topic_replication_factor=self._integer("offsets.topic.replication.factor"),
        )

    def quorum_config(self) -> QuorumConfig:
        """Make what the metadata quorum reads."""
        return QuorumConfig(
            node_id=self._integer("broker.id"),
            voters=self.voters,
            election_timeout_ms=self._integer("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=self._integer("controller.quorum.fetch.timeout.ms"),
            fetch_wait_ms=min(_QUORUM_FETCH_WAIT_MS, self._integer("controller.quorum.fetch.timeout.ms") // 4),
            secret=self.cluster_secret(),
            snapshot_interval_ms=self._integer("metadata.snapshot.interval.ms"),
            snapshot_bytes=self._integer("metadata.snapshot.bytes"),
        )

    def controller_config(self) -> ControllerConfig:
        """Make what the controller reads, and a broker towards it."""
        return ControllerConfig(
            session_timeout_ms=self._integer("broker.session.timeout.ms"),
            heartbeat_interval_ms=self._integer("broker.heartbeat.interval.ms"),
            default_replication_factor=self._integer("default.replication.factor"),
            leader_rebalance_interval_ms=self._integer("leader.rebalance.interval.ms"),
            partitions_max=self._integer("partitions.max"),
        )

    def replication_config(self) -> ReplicationConfig:
        """Make what replication reads."""
        return ReplicationConfig(
            replica_lag_time_max_ms=self._integer("replica.lag.time.max.ms"),
            replica_fetch_max_bytes=self._integer("replica.fetch.max.bytes"),
            replica_fetch_response_max_bytes=self._integer("replica.fetch.response.max.bytes"),
            replica_fetch_wait_max_ms=self._integer("replica.fetch.wait.max.ms"),
            replication_throttle_bytes=self._integer("replication.throttle.bytes"),
        )

    @property
    def voters(self) -> dict[int, tuple[str, int]]:
        """The brokers that vote on the metadata, with their HTTP doors; none: this broker stands alone."""
        return split_voters(self._text("voters")) or {}

    def cluster_secret(self) -> str | None:
        """What the brokers of this cluster show each other; None if they trust everybody."""
        file = self._text("cluster.secret.file")
        if self.secret is None and not file:
            return None
        source = f"cluster.secret.file = {shown(file)}" if self.secret is None else SECRET_VARIABLE
        try:
            secret = self.secret or Path(file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, RuntimeError, UnicodeDecodeError) as error:
            raise SettingError(f"{source} cannot be read: {error}") from error
        if not secret or not secret.isascii() or not secret.isprintable():
            raise SettingError(f"{source}: a secret is one line of letters, digits and signs of ASCII")
        return secret

    def kafka_door_config(self) -> KafkaDoorConfig:
        """Make what the Kafka door reads."""
        return KafkaDoorConfig(
            socket_request_max_bytes=self._integer("socket.request.max.bytes"),
            socket_first_request_max_bytes=self._integer("socket.first.request.max.bytes"),
            socket_frame_timeout_ms=self._integer("socket.frame.timeout.ms"),
            socket_stall_timeout_ms=self._integer("socket.stall.timeout.ms"),
            connections_max_idle_ms=self._integer("connections.max.idle.ms"),
            max_connections_per_broker=self._integer("max.connections.per.broker"),
            max_connections_per_ip=self._integer("max.connections.per.ip"),
            connection_requests_max=self._integer("connection.requests.max"),
            connection_queued_max_bytes=self._integer("connection.queued.max.bytes"),
            queued_answers_max_bytes=self._integer("queued.answers.max.bytes"),
        )

    def grpc_door_config(self) -> GrpcDoorConfig:
        """Make what the gRPC door reads."""
        return GrpcDoorConfig(
            max_grpc_message_bytes=self._integer("max.grpc.message.bytes"),
            max_grpc_calls=self._integer("max.grpc.calls"),
            max_grpc_stream_bytes=self._integer("max.grpc.stream.bytes"),
        )

    def group_config(self) -> GroupConfig:
        """Make what the group coordinator reads."""
        assignors = cast("frozenset[str]", self["group.consumer.assignors"])
        return GroupConfig(
            group_min_session_timeout_ms=self._integer("group.min.session.timeout.ms"),
            group_max_session_timeout_ms=self._integer("group.max.session.timeout.ms"),
            group_initial_rebalance_delay_ms=self._integer("group.initial.rebalance.delay.ms"),
            group_max_size=self._integer("group.max.size"),
            offset_metadata_max_bytes=self._integer("offset.metadata.max.bytes"),
            offsets_retention_minutes=self._integer("offsets.retention.minutes"),
            offsets_retention_check_interval_ms=self._integer("offsets.retention.check.interval.ms"),
            group_consumer_session_timeout_ms=self._integer("group.consumer.session.timeout.ms"),
            group_consumer_heartbeat_interval_ms=self._integer("group.consumer.heartbeat.interval.ms"),
            group_consumer_max_size=self._integer("group.consumer.max.size"),
            group_consumer_assignors=tuple(sorted(assignors, reverse=True)),
        )

    def objects_config(self) -> ObjectsConfig:
        """Make what channels and archived segments read."""
        url = self._text("store.url")
        return ObjectsConfig(
            store_url=url or (self.directory.absolute() / _OBJECTS_FOLDER).as_uri(),
            store_is_own=not url,
            store_threads=self._integer("store.threads"),
            channel_backlog_bytes=self._integer("channel.backlog.bytes"),
            channel_timeout_ms=self._integer("channel.timeout.ms"),
            rama_max_skew_ms=self._integer("rama.max.skew.ms"),
            client_failures_max=self._integer("client.failures.max"),
            remote_log_manager_task_interval_ms=self._integer("remote.log.manager.task.interval.ms"),
        )

    def address(self, name: str) -> tuple[str, int] | None:
        """An address as host and port; None for a word such as `off`."""
        text = self._text(name)
        return None if text in SETTINGS[name].choices else split_address(text)

    @property
    def broker_id(self) -> int:
        """The broker's number."""
        return self._integer("broker.id")

    @property
    def rack(self) -> str:
        """Where the broker stands; "" if that is not said."""
        return self._text("rack")

    @property
    def controlled_shutdown_timeout_ms(self) -> int:
        """How long others have to take over what this broker leads."""
        return self._integer("controlled.shutdown.timeout.ms")

    @property
    def log_level(self) -> str:
        """How much the broker tells: debug, info, warning or error."""
        return self._text("log.level")

    def with_overrides(self, overrides: Mapping[str, object], source: str = _TOPIC) -> Settings:
        """Lay a topic's own settings over these, or those of all topics that were changed while running."""
        if not overrides:
            return self
        own = parse_topic_overrides(overrides)
        return _checked({**self.values, **own}, {**self.sources, **dict.fromkeys(own, source)}, self.secret)

    def _integer(self, name: str) -> int:
        return cast("int", self.values[name])

    def _text(self, name: str) -> str:
        return cast("str", self.values[name])


def default_settings() -> Settings:
    """Give every setting its default."""
    return load_settings(None, {}, {})


def load_settings(file: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Settings:
    """Collect the settings from a TOML file, the environment and flags, each stronger than the one before.

    Without a file, the one that ODRADEK_CONFIG names is read. A key of `flags` is a setting's name, as in
    `--set segment.bytes=4096`, or a setting's own flag, as in `--data`.
    """
    values = {name: setting.default for name, setting in SETTINGS.items()}
    sources = dict.fromkeys(SETTINGS, _DEFAULT)
    if file is None and environ.get(CONFIG_VARIABLE):
        file = Path(environ[CONFIG_VARIABLE])
    from_file = () if file is None else _given_by_file(file)
    for given in (from_file, _given_by_environment(environ), _given_by_flags(flags)):
        for name, raw, source in _without_contradictions(given):
            values[name] = find_setting(name, source).read(raw, source)
            sources[name] = source
    return _checked(values, sources, environ.get(SECRET_VARIABLE, "").strip() or None)


def parse_topic_overrides(overrides: Mapping[str, object]) -> dict[str, Value]:
    """Check the settings that one topic sets for itself; a setting of the whole broker is refused."""
    parsed = {}
    for name, raw in overrides.items():
        setting = find_setting(name, _TOPIC, scope="topic")
        parsed[name] = setting.read(raw, _TOPIC)
    return parsed


def find_setting(name: str, source: str | None = None, scope: Scope | None = None) -> Setting:
    """Look a setting up by its name, or say which one may have been meant."""
    where = "" if source is None else f" ({source})"
    setting = SETTINGS.get(name)
    if setting is None:
        names = [known for known, row in SETTINGS.items() if scope in (None, row.scope)]
        raise SettingError(
            f"there is no setting {shown(name)}{where}{_nearest(name.lower(), names)} 'odradek settings' lists them all"
        )
    if scope not in (None, setting.scope):
        raise SettingError(
            f"{name}{where} cannot be set by a topic: it holds for the whole broker; set it in the broker's file, "
            f"by {setting.environment[0]} or by a flag"
        )
    return setting


def _checked(values: Mapping[str, Value], sources: Mapping[str, str], secret: str | None) -> Settings:
    """Refuse values that are right each for itself but not together."""
    settings = Settings(MappingProxyType(dict(values)), MappingProxyType(dict(sources)), secret)
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    if settings._integer(low) > settings._integer(high):
        raise SettingError(
            f"{low} = {values[low]} ({sources[low]}) is more than {high} = {values[high]} ({sources[high]}): "
            "a record would have to be compacted before it may be; lower the first or raise the second"
        )
    problem = contradiction(values)
    if problem is not None:
        raise SettingError(problem)
    return settings


def _given_by_file(file: Path) -> Iterator[_Given]:
    try:
        content = file.expanduser().read_bytes()
    except (OSError, RuntimeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise SettingError(
            f"the settings file {file} cannot be read: {reason}; name another with --config or {CONFIG_VARIABLE}"
        ) from error
    try:
        document = tomllib.loads(content.decode())
    except ValueError as error:
        line, problem = _place_of_error(error, content)
        raise SettingError(f"the settings file {file}, line {line}, is not TOML: {problem}") from error
    for name, raw in _flattened(document, ""):
        yield name, raw, f"file {file}"


def _place_of_error(error: ValueError, content: bytes) -> tuple[int, str]:
    if isinstance(error, UnicodeDecodeError):
        return content.count(b"\n", 0, error.start) + 1, "a byte there is not UTF-8"
    problem = str(error)
    match = re.search(r" \(at line ([0-9]+), column [0-9]+\)$", problem)
    if match is None:  # tomllib says "at end of document" instead
        return content.count(b"\n") + 1, problem
    return int(match[1]), problem[: match.start()]


def _flattened(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    """Write tables as dotted names: `[segment] bytes = 1` is `segment.bytes = 1` to TOML as well."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _given_by_environment(environ: Mapping[str, str]) -> Iterator[_Given]:
    for variable in sorted(environ):
        ours = variable.startswith(ENVIRONMENT_PREFIX) and variable not in _VARIABLES_OF_OTHERS
        if not ours or not environ[variable]:  # an empty variable counts as none, as in most shells' tools
            continue
        setting = _BY_VARIABLE.get(variable)
        if setting is None:
            raise SettingError(
                f"the environment variable {variable} = {shown(environ[variable])} sets nothing, as there is no "
                f"such setting{_nearest(variable, _BY_VARIABLE)} Rename or unset it"
            )
        yield setting.name, environ[variable], f"environment {variable}"


def _given_by_flags(flags: Mapping[str, str]) -> Iterator[_Given]:
    for key, raw in flags.items():
        own = _BY_FLAG.get(key)
        yield (key, raw, f"flag --set {key}") if own is None else (own.name, raw, f"flag {key}")


def _without_contradictions(given: Iterable[_Given]) -> Iterator[_Given]:
    """Refuse one source that gives a setting two values: neither could be said to be the stronger."""
    seen: dict[str, _Given] = {}
    for name, raw, source in given:
        _, first_raw, first_source = seen.setdefault(name, (name, raw, source))
        if first_raw != raw:
            raise SettingError(
                f"{name} is set twice: to {shown(first_raw)} ({first_source}) and to {shown(raw)} ({source}); "
                "remove one of them"
            )
    return iter(seen.values())


def _nearest(name: str, names: Iterable[str]) -> str:
    matches = get_close_matches(name, list(names), n=1)
    return f": did you mean {matches[0]}?" if matches else "."
