"""The `odradek` command: finds the module of the command that was typed and runs it.

Only the chosen command's module is imported, so that help and small commands answer at once. Such a module has
`add_arguments(parser)` and `run(args) -> int`; what it raises is told in one line here.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

from odradek import __version__
from odradek.cli.terminal import CommandError, escape

EXIT_USAGE = 2
EXIT_INTERRUPTED = 128 + 2  # as a shell counts SIGINT
EXIT_READER_GONE = 128 + 13  # as a shell counts SIGPIPE


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    summary: str
    examples: tuple[str, ...]
    grpc_module: str | None = None  # what runs it instead when --grpc is among its words


COMMANDS = {
    "serve": Command(
        "odradek.cli.serve",
        "run one broker that any Kafka client can use",
        ("odradek serve", "odradek serve --data ./data --kafka 127.0.0.1:9092"),
    ),
    "cluster": Command(
        "odradek.cli.cluster",
        "run several brokers as one cluster; show it, move partitions",
        ("odradek cluster up --brokers 3", "odradek cluster status"),
    ),
    "topic": Command(
        "odradek.cli.topic",
        "make, show, change, trim and delete topics",
        ("odradek topic create orders -p 3", "odradek topic describe orders"),
    ),
    "produce": Command(
        "odradek.cli.produce",
        "send records, one a line",
        ("echo hello | odradek produce orders", "odradek produce orders -k : -f orders.txt"),
        "odradek.cli.grpc_produce",
    ),
    "consume": Command(
        "odradek.cli.consume",
        "show records, those that are there or all that come",
        ("odradek consume orders", "odradek consume orders --from end -f"),
        "odradek.cli.grpc_consume",
    ),
    "group": Command(
        "odradek.cli.group",
        "show consumer groups and their lag, move their offsets",
        ("odradek group describe billing", "odradek group reset billing orders --to start"),
    ),
    "ctl": Command(
        "odradek.cli.ctl",
        "partitions by gRPC (MyKafka): make, remove, show; produce and consume take --grpc",
        ("odradek ctl --action create --topic books --partition 0",),
    ),
    "pipeline": Command(
        "odradek.cli.pipeline",
        "check and run pipelines on Spark, show how they are doing",
        ("odradek pipeline new revenue > revenue.toml", "odradek pipeline run revenue.toml --follow"),
    ),
    "channel": Command(
        "odradek.cli.channel",
        "messages by time in an object store: publish, read, and what it costs",
        ("odradek channel create clicks", "odradek channel cost --rate 1e6 --size 100"),
    ),
    "store": Command(
        "odradek.cli.store",
        "look into an object store: what is there, is it whole",
        ("odradek store ls file:///srv/channels", "odradek store verify s3://bucket clicks"),
    ),
    "bench": Command(
        "odradek.cli.bench",
        "measure any Kafka broker: produce, consume, latency",
        ("odradek bench produce --size 1KiB", "odradek bench latency --rate 1000"),
    ),
    "log": Command(
        "odradek.cli.log",
        "look into a partition's files, or move them: dump, verify, convert",
        ("odradek log dump ~/.odradek/orders-0", "odradek log verify ~/.odradek/orders-0"),
    ),
    "settings": Command(
        "odradek.cli.settings",
        "show every setting, its value and where that came from",
        ("odradek settings", "odradek settings retention.ms"),
    ),
}

# What people type who know other tools, or leave the first word out.
_MEANT = {
    "dump": "log dump",
    "convert": "log convert",
    "verify": "log verify",
    "create": "topic create",
    "delete": "topic delete",
    "describe": "topic describe",
    "list": "topic list",
    "lag": "group describe",
    "up": "cluster up",
    "status": "cluster status",
    "elect": "cluster elect",
    "reassign": "cluster reassign",
    "decommission": "cluster decommission",
    "reset": "group reset",
    "tail": "consume -f",
    "start": "serve",
    "run": "serve",
}


class _Parser(argparse.ArgumentParser):
    """argparse with examples kept as they are written, and its errors in one line."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise CommandError(f"{message}; '{self.prog} --help' shows how it is used", EXIT_USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    show_traceback = arguments[:1] == ["--traceback"]
    if sys.stdout is None:  # closed by the caller, who wants nothing of it
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    _let_any_character_be_printed()
    try:
        status = _dispatch(arguments[1:] if show_traceback else arguments)
        _finish_output()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _abandon_output()
        return EXIT_READER_GONE
    except ConnectionError as error:
        if show_traceback:
            raise
        return _complain(CommandError(f"a connection was lost: {error.strerror or error}"))
    except OSError as error:
        if show_traceback:
            raise
        if error.filename is not None or error.errno is None:
            return _complain(error)
        _abandon_output()
        return _complain(CommandError(f"standard output cannot be written: {error.strerror}"))
    except Exception as error:
        if show_traceback:
            raise
        return _complain(error)
    return status


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"odradek {__version__}")
        return 0
    if arguments[0] == "help":
        return _dispatch([*arguments[1:], "--help"])
    return _run_command(arguments[0], arguments[1:])


def _run_command(name: str, arguments: list[str]) -> int:
    command = COMMANDS.get(name)
    if command is None:
        matches = get_close_matches(name.lower(), COMMANDS, n=1)
        meant = _MEANT.get(name.lower()) or (matches[0] if matches else None)
        hint = f"did you mean '{_spelled(meant)}'?" if meant else "'odradek --help' lists the commands"
        raise CommandError(f"there is no command '{name}': {hint}", EXIT_USAGE)
    gc.disable()  # an import leaves no garbage, and looking for it takes a tenth of a broker's start
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC tells people of every connection that ends
    own_words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    by_grpc = command.grpc_module if "--grpc" in own_words else None
    module = importlib.import_module(by_grpc or command.module)
    gc.enable()
    parser = _Parser(prog=f"odradek {name}", description=command.summary)
    module.add_arguments(parser)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the help that was asked for
        return stop.code if isinstance(stop.code, int) else 0
    status = module.run(args)
    assert isinstance(status, int), f"{command.module}.run returned {status!r}"
    return status


def _spelled(meant: str) -> str:
    """A command of two words as it is typed in full; a single word is near enough to what was typed."""
    return f"odradek {meant}" if " " in meant else meant


def overview() -> str:
    """Say what Odradek is, what it can do today and how to begin."""
    width = max(map(len, COMMANDS))
    commands = (f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items())
    examples = (f"  {example}" for command in COMMANDS.values() for example in command.examples)
    return "\n".join(
        (
            f"Odradek {__version__}: a Kafka-compatible streaming platform that you pip install.",
            "",
            "'odradek serve' runs a broker that any Kafka client can use. The other commands talk to that one,",
            "or with --broker HOST:PORT to any other Kafka broker. With --store URL 'channel' needs no broker.",
            "",
            "Usage: odradek COMMAND [ARGUMENT ...]",
            "       odradek COMMAND --help",
            "       odradek --version",
            "",
            "Commands:",
            *commands,
            "",
            "Examples:",
            *examples,
            "",
            "Documentation: docs/ in the source tree; docs/reference/settings.md explains every setting.",
        )
    )


def _complain(error: Exception) -> int:
    """Tell an error in one line and choose the exit status."""
    if isinstance(error, OSError):
        message = error.strerror or str(error)
        if error.filename is not None:
            message = f"{os.fsdecode(error.filename)}: {message}"
    elif type(error).__module__.startswith("odradek."):  # our own errors are written for people
        message = str(error)
    else:
        message = (
            f"a bug in Odradek: {type(error).__name__}: {error}; "
            "'odradek --traceback COMMAND ...' shows where, please report that"
        )
    print(f"odradek: {escape(message)}", file=sys.stderr)
    return getattr(error, "exit_status", 1)


def _let_any_character_be_printed() -> None:
    """Show a character that the terminal's encoding lacks as an escape: a record is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _finish_output() -> None:
    """Write what is still buffered while a failure can be told in one line; Python's own flush at exit cannot."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _abandon_output()
        raise CommandError(f"standard output cannot be written: {error.strerror}") from error


def _abandon_output() -> None:
    """Point standard output to nowhere, or Python would fail once more when it flushes at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


if __name__ == "__main__":
    raise SystemExit(main())
