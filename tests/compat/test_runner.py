"""The runner's own judgement: what it reads out of foreign logs, and what it makes of the allow-lists.

The foreign suites themselves are not run here; `make compat` does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.compat import allow, report
from tests.compat.kafka_python import read_report
from tests.compat.librdkafka import OUT_OF_REACH, read_log, read_table
from tests.compat.outcome import Outcome, Result
from tests.compat.run import run_twice_if_need_be
from tests.compat.suite import Order

LISTS = sorted(allow.DIRECTORY.glob("*.txt"))

TABLE = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0000_unittests, TEST_F_LOCAL, _THRES(.ucpu = 100.0)),
    _TEST(0001_multiobj, 0),
    _TEST(0028_long_topicnames, TEST_F_KNOWN_ISSUE, TEST_BRKVER(0, 9, 0, 0), .extra = "x"),
    _TEST(0045_subscribe_update_topic_remove, 0, TEST_BRKVER(0, 9, 0, 0), .scenario = "noautocreate"),
    _TEST(0055_producer_latency, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0076_produce_retry, TEST_F_SOCKEM),
    _TEST(0139_offset_validation_mock, 0),
    _TEST(0170_share_consumer_subscription, 0, TEST_BRKVER(4, 2, 0, 0)),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""

LOG = """
[0045_subscribe_update       /  0.000s] ================= Running test 0045_subscribe_update =================
[0045_subscribe_update       /133.459s] ================= Test 0045_subscribe_update PASSED =================
[0045_empty                  /  0.000s] ================= Running test 0045_empty =================
[0045_empty                  /  0.001s] ================= Test 0045_empty PASSED =================
[0045_part                   /  0.000s] ================= Running test 0045_part =================
### Test "0045_part (do_test_it:629)" failed at 0045-x.c:718:do_test_it() at Sun Nov 15 16:52:59 2026: ###
Test assertion failed: "count == 10":
[0045_part                   /  1.000s] ================= Test 0045_part PASSED =================
[0045_mock                   /  0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags
[0045_last                   /  0.000s] ================= Running test 0045_last =================
"""


def test_only_tests_that_need_a_broker_are_taken_from_the_table() -> None:
    assert [(test.name, test.scenario) for test in read_table(TABLE)] == [
        ("0001_multiobj", "default"),
        ("0045_subscribe_update_topic_remove", "noautocreate"),
        ("0055_producer_latency", "default"),
        ("0076_produce_retry", "default"),
    ]


def test_a_log_tells_what_became_of_each_test() -> None:
    names = ["0045_subscribe_update", "0045_empty", "0045_part", "0045_mock", "0045_last", "0045_never"]
    results = {result.name: result for result in read_log(LOG, names, code=None)}
    assert {name: result.outcome for name, result in results.items()} == {
        "0045_subscribe_update": Outcome.PASSED,
        "0045_empty": Outcome.EMPTY,
        "0045_part": Outcome.FAILED,
        "0045_mock": Outcome.SKIPPED,
        "0045_last": Outcome.TIMED_OUT,
        "0045_never": Outcome.NOT_RUN,
    }
    assert results["0045_subscribe_update"].seconds == pytest.approx(133.459)
    assert "count == 10" in results["0045_part"].reason
    assert results["0045_mock"].reason == "Filtered due to negative test flags"


def test_a_program_that_breaks_after_its_last_test_has_not_passed() -> None:
    names = ["0045_subscribe_update"]
    assert read_log(LOG, names, code=0)[0].outcome is Outcome.PASSED
    assert read_log(LOG, names, code=-6)[0].outcome is Outcome.FAILED


def test_a_report_of_pytest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    file.write_text(
        """<testsuites><testsuite name="pytest">
        <testcase classname="test.integration.test_a" name="test_good" time="0.5"/>
        <testcase classname="test.integration.test_a" name="test_bad" time="1"><failure message="no"/></testcase>
        <testcase classname="test.integration.test_a" name="test_slow" time="60">
          <failure message="Failed: Timeout (&gt;60.0s) from pytest-timeout."/></testcase>
        <testcase classname="test.integration.test_a" name="test_old" time="0"><skipped message="too old"/></testcase>
        <testcase classname="test.integration.test_a" name="test_torn" time="1"><error message="at the end"/></testcase>
        </testsuite></testsuites>""",
        encoding="utf-8",
    )
    assert [(result.name, result.outcome) for result in read_report(file, file)] == [
        ("test_a::test_good", Outcome.PASSED),
        ("test_a::test_bad", Outcome.FAILED),
        ("test_a::test_slow", Outcome.TIMED_OUT),
        ("test_a::test_old", Outcome.SKIPPED),
        ("test_a::test_torn", Outcome.FAILED),
    ]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.PASSED])
def test_an_allowed_test_that_is_not_green_fails_the_run(outcome: Outcome) -> None:
    verdict = allow.judge(["a"], [Result("a", outcome), Result("b", outcome)], whole=True)
    assert not verdict.good
    assert [result.name for result in verdict.broken] == ["a"]
    assert "a is in the allow-list" in report.summary("suite", verdict.broken, verdict)


def test_an_allowed_test_that_is_gone_fails_a_whole_run_only() -> None:
    results = [Result("a", Outcome.PASSED)]
    assert allow.judge(["a", "b"], results, whole=True).missing == ["b"]
    assert allow.judge(["a", "b"], results, whole=False).good


def test_a_green_test_that_is_new_is_told_and_added(tmp_path: Path) -> None:
    file = tmp_path / "suite.txt"
    file.write_text("# not c: by chance\nz\nb\n", encoding="utf-8")
    results = [Result(name, Outcome.PASSED) for name in "abc"]
    verdict = allow.judge(allow.read(file), results, whole=False)
    assert verdict.good
    assert verdict.new == ["a", "c"]
    allow.add(file, verdict.new)
    assert file.read_text(encoding="utf-8") == "# not c: by chance\na\nb\nz\n"


class FlakySuite:
    """A suite of three tests: one is red at its first run, one always, one never."""

    name = "flaky"
    minutes_max = 1.0
    scenarios: Mapping[str, Mapping[str, str]] = {"default": {}}

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []

    def prepare(self, cache: Path) -> None:
        """Nothing to fetch."""

    def run(self, order: Order) -> Iterator[Result]:
        """Give the results that the names promise."""
        self.asked.append(order.names)
        first = len(self.asked) == 1
        for name, green in (("at-times", not first), ("never", False), ("always", True)):
            if order.wants(name):
                yield Result(name, Outcome.PASSED if green else Outcome.FAILED)


def test_what_is_allowed_and_red_is_run_again_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow, "DIRECTORY", tmp_path)
    allow.add(tmp_path / "flaky.txt", ["at-times", "always"])
    suite = FlakySuite()
    order = Order("127.0.0.1:1", "4.2", "default", (), 1.0, 0.0, tmp_path, jobs=3)
    results = run_twice_if_need_be(suite, order)
    assert suite.asked == [(), ["at-times"]]
    assert {result.name: (result.green, result.tries) for result in results} == {
        "at-times": (True, 2),
        "never": (False, 1),
        "always": (True, 1),
    }


@pytest.mark.parametrize("file", LISTS, ids=lambda file: file.stem)
def test_an_allow_list_is_in_order_and_within_reach(file: Path) -> None:
    names = allow.read(file)
    assert names
    assert names == sorted(set(names))
    assert not set(names) & (set(OUT_OF_REACH) | allow.kept_out(file))
