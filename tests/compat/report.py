"""What a run tells: a line for each test that is not green, the counts, and a JUnit file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.compat.allow import Verdict
from tests.compat.outcome import Outcome, Result

REASON_CHARACTERS_MAX = 160


def line(result: Result) -> str:
    """One test in one line."""
    reason = " ".join(result.reason.split())
    if len(reason) > REASON_CHARACTERS_MAX:
        reason = reason[:REASON_CHARACTERS_MAX] + "..."
    return f"{result.outcome.value:<9} {result.seconds:7.1f} s  {result.name}  {reason}".rstrip()


def summary(suite: str, results: Sequence[Result], verdict: Verdict) -> str:
    """The end of a run, for people."""
    counts = Counter(result.outcome for result in results)
    lines = [
        f"{suite}: {len(results)} tests, "
        + ", ".join(f"{counts[kind]} {kind.value}" for kind in Outcome if counts[kind])
    ]
    for outcome in Outcome:
        if outcome is not Outcome.PASSED:
            lines += [
                "  " + line(result) for result in sorted(results, key=lambda r: r.name) if result.outcome is outcome
            ]
    lines += [f"  green at the second try: {result.name}" for result in results if result.tries > 1 and result.green]
    if verdict.new:
        lines.append("  green and not in the allow-list yet (--update adds them): " + " ".join(verdict.new))
    lines += [f"  BROKEN: {result.name} is in the allow-list; see {result.log}" for result in verdict.broken]
    lines += [f"  BROKEN: {name} is in the allow-list and was not run" for name in verdict.missing]
    return "\n".join(lines)


def write_junit(file: Path, suite: str, results: Sequence[Result]) -> None:
    """Write the results in the form that CI servers read."""
    root = ElementTree.Element("testsuite", name=suite, tests=str(len(results)))
    for result in results:
        case = ElementTree.SubElement(root, "testcase", classname=suite, name=result.name, time=f"{result.seconds:.3f}")
        if result.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            ElementTree.SubElement(case, "failure", message=f"{result.outcome.value}: {result.reason}")
        elif result.outcome is not Outcome.PASSED:
            ElementTree.SubElement(case, "skipped", message=f"{result.outcome.value}: {result.reason}")
    ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
