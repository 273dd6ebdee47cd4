"""`odradek pipeline`: checks and runs pipelines on Spark, and shows how they are doing."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from odradek.cli.connect import EXIT_USAGE, nearest
from odradek.cli.listing import show, tell
from odradek.cli.terminal import CommandError
from odradek.cli.values import assignment
from odradek.spark.pipelines import Pipeline, PipelineFileError, read_pipeline, ready
from odradek.spark.pipelines.starters import starting_file
from odradek.spark.pipelines.tables import name_problem

_MASTER = re.compile(r"local(\[[^\]]+\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn")

_EXAMPLES = """\
examples:
  odradek pipeline new revenue > revenue.toml
  odradek pipeline check revenue.toml
  odradek pipeline run revenue.toml --follow
  odradek pipeline status revenue

'odradek pipeline COMMAND --help' says more; docs/guides/pipelines.md explains the files.
"""

_RUN_DESCRIPTION = """\
Run a pipeline on Spark. Without a flag, or with --once, it processes what is there and ends; with --follow it goes on
with what comes, until Ctrl+C or SIGTERM, which let the batch under way finish (a second one does not). It goes on where
it stopped, by its checkpoint, so both can be mixed.

A query that fails ends the run with status 1. With --follow one that lost its broker is started again, after pauses of
1 to 60 seconds, ten times at most without a batch in between."""

_CHECK_DESCRIPTION = """\
Look a pipeline over: read its file, let Spark resolve its SQL, and show the columns of each step and the plan of each
sink. Touches nothing: no broker is asked, no record is read, no checkpoint is made."""

_STATUS_DESCRIPTION = """\
Show how pipelines are doing: whether they run, their last batch, rows a second, the size of their state, and by
partition how far they are behind, in records and in seconds (the age of the first record that is not yet processed).
Without a name, all that have run on this machine."""

_NEW_DESCRIPTION = """\
Print a file to begin with, in which every table is explained; with --use one for a ready pipeline, with all its
parameters."""


# check, new and list; run and status have modules of their own


def _check(args: argparse.Namespace) -> int:
    from odradek.cli.pipeline_check import check  # noqa: PLC0415 (needs Spark)

    return check(args, read(args))


def _run(args: argparse.Namespace) -> int:
    from odradek.cli.pipeline_run import run_pipeline  # noqa: PLC0415 (needs Spark)

    return run_pipeline(args, read(args))


def _status(args: argparse.Namespace) -> int:
    from odradek.cli.pipeline_status import status  # noqa: PLC0415 (so that help is quick)

    return status(args)


def _new(args: argparse.Namespace) -> int:
    if (problem := name_problem(args.name)) is not None:
        raise CommandError(problem, EXIT_USAGE)
    if args.use is not None and args.use not in ready.READY:
        hint = nearest(args.use, ready.READY) or "'odradek pipeline list' shows them"
        raise CommandError(f"there is no ready pipeline '{args.use}': {hint}", EXIT_USAGE)
    print(starting_file(args.name, args.use), end="")
    return 0


def _list(args: argparse.Namespace) -> int:
    show(("pipeline", "what it does"), [(name, ready.summary_of(name)) for name in ready.READY])
    return 0


def read(args: argparse.Namespace) -> Pipeline:
    """The pipeline of the file that was named; its mistakes are listed, one a line."""
    try:
        return read_pipeline(Path(args.file), args.set)
    except PipelineFileError as error:
        raise complaint(error) from None


def complaint(error: PipelineFileError) -> CommandError:
    """All mistakes of a file, one a line on standard error if there are several."""
    *others, last = error.lines()
    if not others:
        return CommandError(last)
    for line in error.lines():
        tell(line)
    return CommandError(f"{error.file} has {len(error.problems)} mistakes")


# What is typed.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `odradek pipeline` takes."""
    parser.description = "Check and run pipelines on Spark (topics, files, SQL, Python), and show how they are doing."
    parser.epilog = _EXAMPLES
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="process what is there, or all that comes", description=_RUN_DESCRIPTION)
    run.epilog = (
        "examples:\n"
        "  odradek pipeline run revenue.toml\n"
        "  odradek pipeline run revenue.toml --follow --master spark://10.0.0.1:7077\n"
        "  odradek pipeline run revenue.toml --set sources.orders.topic=orders-test --set pipeline.name=test\n"
    )
    run.set_defaults(action=_run)
    _add_file(run)
    how = run.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="process what is there and end (the default)")
    how.add_argument("--follow", action="store_true", help="go on with what comes")
    run.add_argument(
        "--master", metavar="URL", type=_master, help="where Spark runs (default: in this process, on all cores)"
    )

    check = commands.add_parser("check", help="look a file over, touch nothing", description=_CHECK_DESCRIPTION)
    check.epilog = "examples:\n  odradek pipeline check revenue.toml\n  odradek pipeline check revenue.toml --json\n"
    check.set_defaults(action=_check)
    _add_file(check)

    status = commands.add_parser("status", help="show progress, lag and state", description=_STATUS_DESCRIPTION)
    status.epilog = (
        "examples:\n"
        "  odradek pipeline status\n"
        "  odradek pipeline status revenue --json | jq .lag\n"
        "  odradek pipeline status revenue.toml --follow\n"
    )
    status.set_defaults(action=_status)
    status.add_argument("pipeline", metavar="NAME|FILE", nargs="?", help="one pipeline (default: all)")
    status.add_argument("-f", "--follow", action="store_true", help="show it again every two seconds")
    for command in (check, status):
        command.add_argument("--json", action="store_true", help="print one JSON object a line, for programs")

    new = commands.add_parser("new", help="print a file to begin with", description=_NEW_DESCRIPTION)
    new.epilog = (
        "examples:\n"
        "  odradek pipeline new revenue > revenue.toml\n"
        "  odradek pipeline new orders-archive --use archive > archive.toml\n"
    )
    new.set_defaults(action=_new)
    new.add_argument("name", metavar="NAME", help="what the pipeline is called")
    new.add_argument("--use", metavar="READY", help="one of those that 'odradek pipeline list' shows")

    listed = commands.add_parser("list", help="show the ready pipelines", description="Show the ready pipelines.")
    listed.epilog = "examples:\n  odradek pipeline list\n  odradek pipeline new my-archive --use archive\n"
    listed.set_defaults(action=_list)


def _master(text: str) -> str:
    """Where Spark runs; Spark itself would not say in words what is wrong with it."""
    if not _MASTER.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no master of Spark: write local[2], local[*], spark://HOST:7077, k8s://HOST:PORT or yarn"
        )
    return text


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a pipeline: .toml or .py")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        type=assignment,
        default=[],
        help="replace a value of the file, as in --set pipeline.trigger='5 seconds'; may be given several times",
    )


def run(args: argparse.Namespace) -> int:
    """Do it."""
    status: int = args.action(args)
    return status
