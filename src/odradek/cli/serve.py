"""`odradek serve`: one broker in this process, until SIGTERM or Ctrl+C. What it tells goes to standard error and
to `odradek.log` in the data directory, one line an event; standard output carries the one line that scripts wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from logging.handlers import MemoryHandler, RotatingFileHandler
from pathlib import Path

import uvloop

from odradek.cli.terminal import CommandError, escape
from odradek.config import Settings, load_settings
from odradek.node import Node, run_until

LOG_NAME = "odradek.log"
_LOG_BYTES_MAX = 16 * 2**20
_LOG_FILES_KEPT = 3
_EVENTS_KEPT = 10_000  # until the data directory is open
_THREAD_TURN_SECONDS = 0.001  # background threads give the loop its turn back sooner than Python's 5 ms
_OBJECTS_BEFORE_COLLECTION = 50_000  # requests make few cycles: Python's 700 would look for them all the time

_EPILOG = """examples:
  odradek serve                                   a broker on 127.0.0.1:9092, records in ~/.odradek
  odradek serve --data ./data --kafka :9092       listen on every address of the machine
  odradek serve --kafka 127.0.0.1:0 --http off    any free port; the line 'odradek ready' names it
  odradek serve --grpc :50051                     gRPC for every address; try 'odradek ctl --action info'
  odradek serve --set num.partitions=6 --set retention.ms=1d
  ODRADEK_KAFKA=127.0.0.1:9093 odradek serve      every flag is also an environment variable
  odradek serve --broker-id 2 --http 10.0.0.2:8080 --kafka 10.0.0.2:9092 \\
      --voters 1@10.0.0.1:8080,2@10.0.0.2:8080,3@10.0.0.3:8080
                                                  one of three; 'odradek cluster up' starts all on one machine

'odradek settings' lists everything that can be set, with its default and where its value comes from.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog = _EPILOG
    parser.add_argument("--data", metavar="DIR", help="the data directory (default ~/.odradek)")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="where Kafka clients connect (default 127.0.0.1:9092)")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        help="REST, /docs, /metrics and the other brokers (default 127.0.0.1:8080); or off",
    )
    parser.add_argument(
        "--grpc",
        metavar="HOST:PORT",
        help="MyKafka's and Eeylops' services, health and reflection (default 127.0.0.1:50051; without the door if "
        "that is taken); or off",
    )
    parser.add_argument("--broker-id", metavar="N", help="the number by which clients know this broker (default 1)")
    parser.add_argument(
        "--voters",
        metavar="ID@HOST:PORT,...",
        help="the brokers of the cluster that keep its metadata, by their HTTP addresses; the same at each of them",
    )
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info (default), warning or error")
    parser.add_argument("--config", metavar="FILE", type=Path, help="read settings from a TOML file")
    parser.add_argument(
        "--set", metavar="NAME=VALUE", action="append", default=[], help="set one setting; may be given several times"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until told to stop."""
    settings = load_settings(args.config, os.environ, _flags(args))
    log = _BrokerLog(settings)
    _allow_many_files()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    sys.setswitchinterval(_THREAD_TURN_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, log))


async def _serve(settings: Settings, log: _BrokerLog) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = await Node.start(settings, on_open=log.open_file)
    try:
        gc.freeze()  # what is there now stays
        print(node.ready_line, flush=True)
        failure = await run_until(node, stop)
    finally:
        await node.stop()
    if failure is not None:
        raise CommandError(f"the broker has stopped: {failure}")
    return 0


def _flags(args: argparse.Namespace) -> dict[str, str]:
    """What the command line says, by the names of the flags and of the settings."""
    own = ("data", "kafka", "http", "grpc", "broker_id", "voters", "log_level")
    flags = {f"--{name.replace('_', '-')}": getattr(args, name) for name in own if getattr(args, name) is not None}
    for assignment in args.set:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise CommandError(f"--set {assignment}: write NAME=VALUE, as in --set retention.ms=1d", 2)
        flags[name.strip()] = value
    return flags


class _OneLine(logging.Formatter):
    """One line an event, whatever a client has put into it."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        """Write the event, a traceback included, with all that could break or drive a terminal escaped."""
        return escape(super().format(record))


class _BrokerLog:
    """Tells events on standard error, and in the data directory as soon as that is ours."""

    def __init__(self, settings: Settings) -> None:
        logging.raiseExceptions = False  # a log that cannot be written must not fill the terminal
        self._formatter = _OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._root = logging.getLogger("odradek")
        self._root.setLevel(settings.log_level.upper())
        self._early = MemoryHandler(_EVENTS_KEPT, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        for handler in (logging.StreamHandler(sys.stderr), self._early):
            handler.setFormatter(self._formatter)
            self._root.addHandler(handler)

    def open_file(self, directory: Path) -> None:
        """Write what was told so far, and all that follows, to the directory's log."""
        file = RotatingFileHandler(
            directory / LOG_NAME, maxBytes=_LOG_BYTES_MAX, backupCount=_LOG_FILES_KEPT, encoding="utf-8", delay=True
        )
        file.setFormatter(self._formatter)
        self._early.setTarget(file)
        self._early.flush()
        self._root.removeHandler(self._early)
        self._root.addHandler(file)


def _allow_many_files() -> None:
    """A partition has files and a client a socket: take as many as the system gives without asking."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
