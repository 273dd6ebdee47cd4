"""The settings: what is accepted, what is refused and how, and which source is the strongest."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.config import BrokerConfig
from odradek.broker.objects_config import ObjectsConfig, TopicObjects
from odradek.config import (
    SETTINGS,
    Kind,
    Setting,
    SettingError,
    Settings,
    default_settings,
    load_settings,
    parse_topic_overrides,
)
from odradek.edge.config import GrpcDoorConfig, KafkaDoorConfig
from odradek.groups.config import GroupConfig
from odradek.log.config import Flush, LogConfig, StoreConfig
from odradek.replication.config import ReplicationConfig
from tests.architecture.test_settings import READ_BY_NAME

NUMBERS = [setting for setting in SETTINGS.values() if setting.kind in (Kind.SIZE, Kind.DURATION, Kind.COUNT)]


def load(
    toml: str | None = None,
    environ: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
    *,
    folder: Path | None = None,
) -> Settings:
    file = None
    if toml is not None:
        assert folder is not None
        file = folder / "odradek.toml"
        file.write_text(toml)
    return load_settings(file, environ or {}, flags or {})


# The table


def test_topic_settings_are_the_fields_of_what_logs_and_stores_are_given_and_min_insync_replicas() -> None:
    names = {setting.name for setting in SETTINGS.values() if setting.scope == "topic"}
    given = {field.name.replace("_", ".") for part in (LogConfig, TopicObjects) for field in fields(part)}
    assert names == given | {"min.insync.replicas"}


def test_broker_settings_are_the_fields_of_what_the_parts_are_given() -> None:
    names = {setting.name for setting in SETTINGS.values() if setting.scope == "broker"}
    parts = (StoreConfig, BrokerConfig, KafkaDoorConfig, GrpcDoorConfig, GroupConfig, ReplicationConfig, ObjectsConfig)
    given = {field.name.replace("_", ".") for part in parts for field in fields(part)} - {"store.is.own"}
    by_name = {"dir", "log.level", "rack"} | READ_BY_NAME
    of_the_cluster = {
        "voters",
        "cluster.secret.file",
        "controller.quorum.election.timeout.ms",
        "controller.quorum.fetch.timeout.ms",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "default.replication.factor",
        "leader.rebalance.interval.ms",
        "metadata.snapshot.interval.ms",
        "metadata.snapshot.bytes",
        "controlled.shutdown.timeout.ms",
    }
    assert names == given | by_name | of_the_cluster


@pytest.mark.parametrize(
    "part", ["broker_config", "kafka_door_config", "group_config", "store_config", "replication_config"]
)
def test_every_field_carries_the_value_of_the_setting_of_its_name(part: str) -> None:
    settings = default_settings()
    made = getattr(settings, part)()
    for field in fields(made):
        value = settings[field.name.replace("_", ".")]
        expected = tuple(sorted(value, reverse=True)) if isinstance(value, frozenset) else value
        assert getattr(made, field.name) == expected, field.name


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        (":0", ("0.0.0.0", 0)),
        ("[::1]:1", ("::1", 1)),
        ("host.example:65535", ("host.example", 65535)),
        ("off", None),
    ],
)
def test_an_address_is_a_host_and_a_port_or_off(text: str, address: tuple[str, int] | None) -> None:
    assert load_settings(None, {}, {"--kafka": text}).address("kafka") == address


@pytest.mark.parametrize("text", ["", "9092", "host", "host:", "host:65536", "host:-1", "a b:1", "::1:9092", "auto"])
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingError, match=r"127\.0\.0\.1:9092"):
        load_settings(None, {}, {"--kafka": text})


@pytest.mark.parametrize(("text", "value"), [("true", True), ("FALSE", False), (" True ", True)])
def test_a_boolean_is_true_or_false(text: str, value: bool) -> None:
    assert load_settings(None, {}, {"delete.topic.enable": text})["delete.topic.enable"] is value
    with pytest.raises(SettingError, match="true or false"):
        load_settings(None, {}, {"delete.topic.enable": "yes"})


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_default_is_allowed_and_reads_back_as_itself(setting: Setting) -> None:
    assert setting.read(setting.default, "a test") == setting.default
    assert setting.read(setting.text(setting.default), "a test") == setting.default
    assert setting.read(setting.human(setting.default), "a test") == setting.default


def test_no_two_settings_share_an_environment_variable() -> None:
    variables = [variable for setting in SETTINGS.values() for variable in setting.environment]
    assert len(variables) == len(set(variables))


def test_no_name_is_the_beginning_of_another_since_toml_could_not_hold_both() -> None:
    assert [(a, b) for a in SETTINGS for b in SETTINGS if b.startswith(f"{a}.")] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.bytes", 1_073_741_824),
        ("segment.ms", 604_800_000),
        ("segment.index.bytes", 10_485_760),
        ("index.interval.bytes", 4096),
        ("retention.bytes", -1),
        ("retention.ms", 604_800_000),
        ("cleanup.policy", frozenset({"delete"})),
        ("delete.retention.ms", 86_400_000),
        ("min.cleanable.dirty.ratio", 0.5),
        ("min.compaction.lag.ms", 0),
        ("max.compaction.lag.ms", 9_223_372_036_854_775_807),
        ("max.message.bytes", 1_048_588),
        ("message.timestamp.type", "CreateTime"),
        ("min.insync.replicas", 1),
        ("producer.id.expiration.ms", 86_400_000),
    ],
)
def test_defaults_that_kafka_has_too_are_kafkas(name: str, value: object) -> None:
    assert default_settings()[name] == value


# Values


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("segment.bytes", "4096", 4096),
        ("segment.bytes", "64MiB", 64 * 2**20),
        ("segment.bytes", " 1 gib ", 2**30),
        ("segment.bytes", "1MB", 1_000_000),
        ("segment.bytes", "2048B", 2048),
        ("retention.ms", "7d", 604_800_000),
        ("retention.ms", "500ms", 500),
        ("retention.ms", "90s", 90_000),
        ("retention.ms", "3min", 180_000),
        ("retention.ms", "3m", 180_000),
        ("retention.ms", "2h", 7_200_000),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-1", -1),
        ("log.open.files.max", "0", 0),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("cleanup.policy", "compact, delete", frozenset({"compact", "delete"})),
        ("cleanup.policy", "compact", frozenset({"compact"})),
        ("flush", "os", "os"),
    ],
)
def test_a_value_can_be_written_as_people_write_it(name: str, text: str, value: object) -> None:
    settings = load(flags={name: text})
    assert settings[name] == value
    assert type(settings[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("segment.bytes", "1023", "is too small; allowed: 1KiB to 2147483647B"),
        ("segment.bytes", "2GiB", "is too large; allowed: 1KiB to 2147483647B"),
        ("segment.bytes", "-1", "is too small"),
        ("segment.bytes", "1d", "is not a whole number of bytes, or one with a unit such as 64MiB"),
        ("segment.bytes", "1.5GiB", "is not a whole number of bytes"),
        ("segment.bytes", "", "is not a whole number of bytes"),
        ("segment.bytes", "9" * 5000, "is not a whole number of bytes"),
        ("segment.bytes", "٤٠٩٦", "is not a whole number of bytes"),
        ("retention.ms", "-2", "is too small; allowed: 0 or more, or -1 for unlimited"),
        ("retention.ms", "-1d", "is not a whole number of milliseconds"),
        ("retention.ms", "7MiB", "is not a whole number of milliseconds"),
        ("log.flush.threads", "4 threads", "is not a whole number; allowed: 1 to 256"),
        ("log.flush.threads", "0", "is too small"),
        ("min.cleanable.dirty.ratio", "1.1", "is too large; allowed: 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "is not a number"),
        ("min.cleanable.dirty.ratio", "half", "is not a number such as 0.5"),
        ("cleanup.policy", "shred", "has a word that is not in the list; allowed: delete, compact, or several"),
        ("cleanup.policy", "delete,", "has a word that is not in the list"),
        ("flush", "GROUP", "is not in the list; allowed: group, replicated or os"),
        ("message.timestamp.type", "now", "is not in the list; allowed: CreateTime or LogAppendTime"),
        ("dir", "", "is not a path"),
        ("dir", "/tmp/\0", "is not a path"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_its_source_and_what_is_allowed(
    name: str, text: str, problem: str
) -> None:
    with pytest.raises(SettingError) as caught:
        load(flags={name: text})
    message = str(caught.value)
    assert message.startswith(f"{name} = ")
    assert f"(flag --set {name}) {problem}" in message
    assert "\0" not in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "toml",
    [
        "log.flush.threads = true",
        "log.flush.threads = 1.0",
        "log.flush.threads = [1]",
        "log.flush.threads = 1979-05-27",
        "min.cleanable.dirty.ratio = true",
        "segment.bytes = 0x" + "f" * 5000,
        "cleanup.policy = [1]",
        "flush = 1",
        "dir = 1",
    ],
)
def test_a_toml_value_of_another_type_is_refused(tmp_path: Path, toml: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(toml, folder=tmp_path)
    name = toml.partition(" = ")[0]
    assert str(caught.value).startswith(f"{name} = ")
    assert f"(file {tmp_path}/odradek.toml) is" in str(caught.value)


@given(st.sampled_from(NUMBERS), st.data())
def test_what_is_written_with_a_unit_reads_back_as_the_same_number(setting: Setting, data: st.DataObject) -> None:
    number = data.draw(st.integers(int(setting.low), int(setting.high)))
    assert setting.read(setting.human(number), "a test") == number
    assert setting.read(setting.text(number), "a test") == number


@given(st.sampled_from(list(SETTINGS.values())), st.text() | st.integers() | st.floats() | st.none() | st.booleans())
def test_any_value_is_accepted_within_its_bounds_or_refused_with_a_setting_error(setting: Setting, raw: object) -> None:
    try:
        value = setting.read(raw, "a test")
    except SettingError as error:
        assert setting.name in str(error)
    else:
        assert setting.read(value, "a test") == value
        if isinstance(value, int | float) and (setting.special is None or value != setting.special[0]):
            assert setting.low <= value <= setting.high


# Names


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("segment.byte", "segment.bytes"),
        ("log.segment.bytes", "segment.bytes"),
        ("SEGMENT.BYTES", "segment.bytes"),
        ("retention_ms", "retention.ms"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_right_one(wrong: str, right: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(flags={wrong: "4096"})
    assert f"no setting '{wrong}' (flag --set {wrong}): did you mean {right}?" in str(caught.value)


def test_a_name_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(SettingError, match=r"no setting 'zzzz' \(flag --set zzzz\)\. 'odradek settings' lists"):
        load(flags={"zzzz": "1"})


# Sources


def test_flags_win_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    toml = "segment.bytes = 2048\nsegment.ms = 2\nretention.ms = 2"
    environ = {"ODRADEK_SEGMENT_BYTES": "3072", "ODRADEK_SEGMENT_MS": "3", "PATH": "/bin"}
    settings = load(toml, environ, {"segment.bytes": "4096"}, folder=tmp_path)
    file = tmp_path / "odradek.toml"
    names = ("segment.bytes", "segment.ms", "retention.ms", "retention.bytes")
    assert {name: (settings[name], settings.source(name)) for name in names} == {
        "segment.bytes": (4096, "flag --set segment.bytes"),
        "segment.ms": (3, "environment ODRADEK_SEGMENT_MS"),
        "retention.ms": (2, f"file {file}"),
        "retention.bytes": (-1, "default"),
    }


def test_a_wrong_value_is_refused_even_where_a_stronger_source_sets_another(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"file .*is too small"):
        load("segment.bytes = 1", flags={"segment.bytes": "4096"}, folder=tmp_path)


@pytest.mark.parametrize(
    "toml",
    [
        '"log.flush.threads" = 7',
        "log.flush.threads = 7",
        "[log.flush]\nthreads = 7",
        '[log]\n"flush.threads" = 7',
        "[log]\nflush = { threads = 7 }",
    ],
)
def test_the_file_may_write_a_name_flat_dotted_or_as_tables(tmp_path: Path, toml: str) -> None:
    assert load(toml, folder=tmp_path)["log.flush.threads"] == 7


def test_the_file_may_write_a_set_as_a_list_or_with_commas(tmp_path: Path) -> None:
    both = frozenset({"delete", "compact"})
    assert load('cleanup.policy = ["delete", "compact"]', folder=tmp_path)["cleanup.policy"] == both
    assert load('cleanup.policy = "delete,compact"', folder=tmp_path)["cleanup.policy"] == both


def test_a_file_that_sets_a_name_to_two_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"segment\.bytes is set twice: to 2048 .* and to 4096"):
        load('"segment.bytes" = 2048\n[segment]\nbytes = 4096', folder=tmp_path)


def test_a_wrong_name_in_a_file_is_refused_with_the_file_and_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'segment\.bites' \(file .*odradek\.toml\): did you mean segment\.bytes\?"):
        load("[segment]\nbites = 1", folder=tmp_path)


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        (b"segment.bytes = 2048\nflush = group\n", 2),
        (b"flush = 'os'\n\nsegment.bytes =", 3),
        (b"flush = 'os'\nflush = 'group'\n", 2),
        (b"flush = 'os'\n# \xff\n", 2),
        (b'dir = """\n\nno end', 3),
    ],
)
def test_a_file_that_is_not_toml_is_refused_with_its_path_and_line(tmp_path: Path, toml: bytes, line: int) -> None:
    file = tmp_path / "odradek.toml"
    file.write_bytes(toml)
    with pytest.raises(SettingError) as caught:
        load_settings(file, {}, {})
    assert f"the settings file {file}, line {line}, is not TOML: " in str(caught.value)


def test_a_file_that_is_missing_is_refused_with_how_to_name_another(tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        load_settings(tmp_path / "none.toml", {}, {})
    assert f"{tmp_path}/none.toml cannot be read: No such file or directory" in str(caught.value)
    assert "--config or ODRADEK_CONFIG" in str(caught.value)


def test_odradek_config_names_the_file_unless_the_caller_does(tmp_path: Path) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text("segment.ms = 1")
    other.write_text("segment.ms = 2")
    assert load_settings(None, {"ODRADEK_CONFIG": str(one)}, {})["segment.ms"] == 1
    assert load_settings(other, {"ODRADEK_CONFIG": str(one)}, {})["segment.ms"] == 2


def test_an_unknown_odradek_variable_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(SettingError) as caught:
        load(environ={"ODRADEK_SEGMENT_BITES": "4096"})
    assert "ODRADEK_SEGMENT_BITES = '4096' sets nothing" in str(caught.value)
    assert "did you mean ODRADEK_SEGMENT_BYTES?" in str(caught.value)


def test_variables_that_are_no_settings_of_ours_are_left_alone() -> None:
    environ = {"ODRADEK_TEST_PROFILE": "long", "SEGMENT_BYTES": "1", "ODRADEKS": "1"}
    assert load(environ=environ).values == default_settings().values


def test_an_empty_variable_counts_as_none() -> None:
    assert load(environ={"ODRADEK_SEGMENT_BYTES": "", "ODRADEK_CONFIG": ""}).source("segment.bytes") == "default"


# The directory


def test_the_directory_comes_from_odradek_dir_odradek_data_or_the_data_flag() -> None:
    assert load(environ={"ODRADEK_DIR": "/a"}).directory == Path("/a")
    assert load(environ={"ODRADEK_DATA": "/b"}).directory == Path("/b")
    by_flag = load(environ={"ODRADEK_DIR": "/a"}, flags={"--data": "/c"})
    assert (by_flag.directory, by_flag.source("dir")) == (Path("/c"), "flag --data")


def test_two_variables_may_name_the_same_directory_but_not_two() -> None:
    assert load(environ={"ODRADEK_DIR": "/a", "ODRADEK_DATA": "/a"}).directory == Path("/a")
    with pytest.raises(SettingError, match=r"dir is set twice: .*ODRADEK_DATA.*ODRADEK_DIR.*remove one"):
        load(environ={"ODRADEK_DIR": "/a", "ODRADEK_DATA": "/b"})


def test_the_directory_has_its_tilde_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/k")
    assert default_settings().directory == Path("/home/k/.odradek")


def test_a_home_that_does_not_exist_is_refused_with_the_settings_name() -> None:
    with pytest.raises(SettingError, match=r"dir = '~nobody-at-all/x' \(flag --data\) needs a home directory"):
        _ = load(flags={"--data": "~nobody-at-all/x"}).directory


# The typed objects


def test_a_log_config_has_the_brokers_values_and_the_topics_own_above_them() -> None:
    settings = load(flags={"segment.bytes": "4096", "retention.ms": "1h"})
    config = settings.log_config({"retention.ms": "2h", "cleanup.policy": "compact", "flush": "os"})
    assert (config.segment_bytes, config.retention_ms) == (4096, 7_200_000)
    assert (config.compacts, config.deletes, config.flush) == (True, False, Flush.OS)
    assert settings.log_config().retention_ms == 3_600_000


def another_value(setting: Setting) -> str:
    if setting.kind is Kind.RATIO:
        return "0.25"
    return setting.choices[-1] if setting.choices else "70KiB" if setting.kind is Kind.SIZE else "200"


@pytest.mark.parametrize("field", [field.name for field in fields(LogConfig)])
def test_each_field_of_a_log_config_is_the_setting_of_its_name(field: str) -> None:
    name = field.replace("_", ".")
    default = default_settings().log_config()
    config = default_settings().log_config({name: another_value(SETTINGS[name])})
    assert {f.name for f in fields(LogConfig) if getattr(config, f.name) != getattr(default, f.name)} == {field}


@pytest.mark.parametrize("field", [field.name for field in fields(StoreConfig)])
def test_each_field_of_a_store_config_is_the_setting_of_its_name(field: str) -> None:
    name = field.replace("_", ".")
    default = default_settings().store_config()
    config = load(flags={name: another_value(SETTINGS[name])}).store_config()
    assert {f.name for f in fields(StoreConfig) if getattr(config, f.name) != getattr(default, f.name)} == {field}


def test_a_topics_overrides_are_parsed_and_parsing_them_again_changes_nothing() -> None:
    parsed = parse_topic_overrides({"cleanup.policy": "compact,delete", "segment.bytes": "1MiB"})
    assert parsed == {"cleanup.policy": frozenset({"compact", "delete"}), "segment.bytes": 2**20}
    assert parse_topic_overrides(parsed) == parsed


def test_a_topic_cannot_set_what_holds_for_the_broker() -> None:
    with pytest.raises(SettingError) as caught:
        parse_topic_overrides({"log.flush.threads": "2"})
    assert "log.flush.threads (topic) cannot be set by a topic: it holds for the whole broker" in str(caught.value)
    assert "ODRADEK_LOG_FLUSH_THREADS" in str(caught.value)


def test_a_topics_wrong_name_or_value_is_refused_as_the_topics() -> None:
    with pytest.raises(SettingError, match=r"no setting 'flsh' \(topic\): did you mean flush\?"):
        parse_topic_overrides({"flsh": "os"})
    with pytest.raises(SettingError, match=r"flush = 'no' \(topic\) is not in the list"):
        default_settings().log_config({"flush": "no"})


def test_a_minimal_compaction_lag_above_the_maximal_is_refused_also_across_sources() -> None:
    with pytest.raises(SettingError, match=r"min\.compaction\.lag\.ms = 2000 \(flag .* is more than max\."):
        load(flags={"min.compaction.lag.ms": "2s", "max.compaction.lag.ms": "1s"})
    settings = load(flags={"max.compaction.lag.ms": "1s"})
    with pytest.raises(SettingError, match=r"min\.compaction\.lag\.ms = 2000 \(topic\) is more than max\..* \(flag"):
        settings.log_config({"min.compaction.lag.ms": "2s"})


def test_settings_cannot_be_changed() -> None:
    settings = default_settings()
    with pytest.raises(TypeError):
        settings.values["segment.bytes"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        settings.values = {}  # type: ignore[misc]
