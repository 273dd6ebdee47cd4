"""`odradek serve`: the line that scripts wait for, a clean stop, and one clear line when it cannot start or go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from odradek.records.build import build_batch
from odradek.records.record import NewRecord
from odradek.wire.messages import metadata, produce
from tests.edge.raw import RawClient, produce_request
from tests.process import BrokerProcess, wait_until

ODRADEK = str(Path(sys.executable).with_name("odradek"))


def serve(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to end by itself."""
    command = [*prefix, ODRADEK, "serve", "--kafka", "127.0.0.1:0", "--http", "off", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment}
    )


def complaint(ran: subprocess.CompletedProcess[str]) -> str:
    """The one line that the person gets; what the log says stands before it."""
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout == ""
    lines = [line for line in ran.stderr.splitlines() if line.startswith("odradek: ")]
    assert len(lines) == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    return lines[0]


def test_it_prints_one_line_when_it_serves_and_stops_cleanly(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", http=True) as broker:
        assert (
            broker.ready_line
            == f"odradek ready broker=1 kafka={broker.bootstrap} http={broker.http_url[7:]} grpc=off\n"
        )
        with urllib.request.urlopen(f"{broker.http_url}/healthcheck", timeout=10) as answer:
            assert json.load(answer) == {"status": "up", "broker_id": 1, "leader_broker_id": 1}
        assert broker.stop() == 0
    assert (tmp_path / "data" / "clean-stop").exists()
    assert (tmp_path / "data" / "odradek.log").exists()


def test_ctrl_c_stops_it_cleanly(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.process.send_signal(signal.SIGINT)
        assert broker.process.wait(30) == 0


def test_every_flag_is_also_a_variable(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "ODRADEK_DATA": str(tmp_path / "data"),
        "ODRADEK_KAFKA": "127.0.0.1:0",
        "ODRADEK_HTTP": "off",
        "ODRADEK_GRPC": "off",
        "ODRADEK_BROKER_ID": "7",
        "ODRADEK_LOG_LEVEL": "error",
        "ODRADEK_NUM_PARTITIONS": "3",
    }
    with subprocess.Popen(
        [ODRADEK, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("odradek ready broker=7 kafka=127.0.0.1:")
        process.terminate()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = complaint(serve("--data", str(tmp_path / "data"), "--kafka", address))
        assert f"cannot listen on {address}" in line and "--kafka" in line
        line = complaint(serve("--data", str(tmp_path / "data"), "--http", address))
        assert f"cannot listen on {address}" in line and "--http" in line
    assert not (tmp_path / "data").exists(), "nothing is made before the ports are there"


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        line = complaint(serve("--data", str(tmp_path / "data")))
        assert "another" in line and str(tmp_path / "data") in line
        with RawClient(broker.port) as client:
            client.ask(metadata.Request(topics=[]), metadata.Response, 9)


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear reader", encoding="utf-8")
    line = complaint(serve("--data", str(tmp_path)))
    assert "letters.txt" in line and "--data" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters.txt"]


def test_a_directory_of_apache_kafka_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1", encoding="utf-8")
    assert "Apache Kafka" in complaint(serve("--data", str(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meta.properties"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    line = complaint(serve("--data", str(tmp_path / "file" / "data")))
    assert str(tmp_path / "file") in line and "--data" in line


def test_a_damaged_metadata_log_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "__cluster_metadata.log").write_text("nonsense\n", encoding="utf-8")
    assert "line 1" in complaint(serve("--data", str(tmp_path)))


def test_wrong_settings_are_explained(tmp_path: Path) -> None:
    ran = serve("--data", str(tmp_path), "--set", "num.partition=3")
    assert "did you mean num.partitions" in ran.stderr and ran.returncode == 1
    ran = serve("--data", str(tmp_path), "--kafka", "nowhere")
    assert "127.0.0.1:9092" in ran.stderr and ran.returncode == 1
    ran = serve("--data", str(tmp_path), "--set", "nonsense")
    assert "NAME=VALUE" in ran.stderr and ran.returncode == 2
    ran = serve("--data", str(tmp_path), "--grpc", "here")
    assert "grpc" in ran.stderr and ran.returncode != 0


def small_disk(directory: Path, size: str) -> tuple[str, ...]:
    """A prefix that runs a command with a small file system of its own at a directory."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not there")
    directory.mkdir()
    script = f'mount -t tmpfs -o size={size} none "{directory}" && exec "$@"'
    prefix = ("unshare", "--map-root-user", "--user", "--mount", "sh", "-c", script, "sh")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    return prefix


def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path) -> None:
    prefix = small_disk(tmp_path / "data", "4k,nr_inodes=2")
    line = complaint(serve("--data", str(tmp_path / "data"), prefix=prefix))
    assert "no space is left" in line


class SmallDiskBroker(BrokerProcess):
    """A broker on a disk of a few megabytes."""

    def command(self) -> list[str]:
        return [*small_disk(self.directory, "6m"), *super().command()]


def test_a_disk_that_becomes_full_stops_the_broker_and_says_so(tmp_path: Path) -> None:
    settings = {"segment.bytes": "1MiB", "retention.ms": "-1"}  # the records are of 1970
    with SmallDiskBroker(tmp_path / "data", settings) as broker:
        with RawClient(broker.port) as client:
            client.ask(metadata.Request(topics=[metadata.RequestTopic(name="t")]), metadata.Response, 9)
            batch = bytes(build_batch([NewRecord(bytes(400_000), timestamp=7)]))
            codes = []
            for _ in range(30):
                try:
                    answer = client.ask(produce_request("t", batch), produce.Response, 9)
                except (AssertionError, ConnectionError):
                    break
                assert isinstance(answer, produce.Response)
                codes.append(answer.responses[0].partition_responses[0].error_code)
            assert codes[0] == 0
            assert len(codes) < 30 or codes[-1] != 0, "it may answer for a moment longer, but takes nothing any more"
        wait_until(lambda: broker.process.poll() is not None, 30, "the end of the broker")
        assert broker.process.returncode == 1
        lines = [line for line in broker.log().splitlines() if line.startswith("odradek: ")]
        assert len(lines) == 1 and "no space is left" in lines[0]
