"""The history checker finds each anomaly that was put into a good history, and nothing in a good one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fault.history import (
    ANOMALIES,
    SHOWN_MAX,
    Acknowledged,
    Assigned,
    Finding,
    History,
    Place,
    Polled,
    Record,
    in_words,
    longest_silence_ms,
    summary,
)

PER_PARTITION = 6


def good() -> History:
    """Two producers, two partitions with a gap in their offsets, one consumer that was assigned twice."""
    history = History()
    for partition in range(2):
        history.consumed.append(Assigned(0, "c", partition))
        for number in range(PER_PARTITION):
            record = Record("ab"[number % 2], number + 100 * partition)
            place = Place(partition, number + (number > 3))
            history.acknowledged.append(Acknowledged(number * 10, record, place))
            history.consumed.append(Polled(number * 10, "c", record, place))
            history.final[place] = record
    history.consumed.append(Assigned(70, "c", 0))
    again = Place(0, 1)
    history.consumed.append(Polled(70, "c", history.final[again], again))
    return history


def anomalies(history: History) -> set[str]:
    return {finding.anomaly for finding in history.check()}


def test_a_good_history_is_clean() -> None:
    findings = good().check()
    assert findings == []
    assert summary(findings) == "clean"


def lose_the_last(history: History) -> None:
    """Acknowledged, and in nobody's hands."""
    lost = history.final.pop(max(history.final))
    history.consumed = [event for event in history.consumed if isinstance(event, Assigned) or event.record != lost]


def show_what_went_away(history: History) -> None:
    """A consumer saw past the high watermark: not acknowledged, read, gone."""
    history.consumed.append(Polled(99, "d", Record("a", 999), Place(1, 99)))


def write_one_twice(history: History) -> None:
    history.final[Place(1, 50)] = history.final[Place(1, 6)]


def tell_two_stories(history: History) -> None:
    """Two consumers were given different records of one offset; both records are in the log."""
    history.consumed.append(Polled(99, "d", history.final[Place(0, 1)], Place(0, 0)))


def show_it_to_nobody(history: History) -> None:
    record, place = Record("b", 300), Place(1, 60)
    history.acknowledged.append(Acknowledged(80, record, place))
    history.final[place] = record


def skip_one(history: History) -> None:
    """The other consumer saw them all, so that nothing is unseen."""
    for offset in (0, 2):
        history.consumed.append(Polled(99, "d", history.final[Place(0, offset)], Place(0, offset)))


def go_back(history: History) -> None:
    history.consumed.append(Polled(99, "c", history.final[Place(1, 0)], Place(1, 0)))


def repeat_one(history: History) -> None:
    history.consumed.append(Polled(99, "c", history.final[Place(1, 6)], Place(1, 6)))


def _later_before_earlier(history: History, *, acknowledge: bool) -> None:
    for sequence, offset in ((401, 70), (400, 71)):
        record, place = Record("b", sequence), Place(1, offset)
        history.final[place] = record
        history.consumed.append(Polled(99, "c", record, place))
        if acknowledge:
            history.acknowledged.append(Acknowledged(80, record, place))


def send_out_of_order(history: History) -> None:
    _later_before_earlier(history, acknowledge=True)


def store_out_of_order(history: History) -> None:
    """Not even acknowledged: the log alone tells."""
    _later_before_earlier(history, acknowledge=False)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lose_the_last, {"lost-write"}),
        (show_what_went_away, {"lost-write"}),
        (write_one_twice, {"duplicate"}),
        (tell_two_stories, {"duplicate", "inconsistent-offsets"}),
        (show_it_to_nobody, {"unseen"}),
        (skip_one, {"poll-skip"}),
        (go_back, {"nonmonotonic-poll"}),
        (repeat_one, {"nonmonotonic-poll"}),
        (send_out_of_order, {"nonmonotonic-send"}),
        (store_out_of_order, {"nonmonotonic-send"}),
    ],
)
def test_each_anomaly_is_found(spoil: Callable[[History], None], expected: set[str]) -> None:
    history = good()
    spoil(history)
    assert anomalies(history) == expected


def test_an_overwritten_record_is_lost_and_its_place_disputed() -> None:
    history = good()
    place = Place(0, 2)
    taken, history.final[place] = history.final[place], Record("z", 700)
    findings = history.check()
    assert {finding.anomaly for finding in findings} == {"lost-write", "inconsistent-offsets"}
    assert any(f"record {taken.sequence} of producer {taken.producer}" in finding.text for finding in findings)


def test_an_acknowledgement_without_an_offset_is_a_promise_all_the_same() -> None:
    history = good()
    history.acknowledged = [event._replace(place=Place(event.place.partition, -1)) for event in history.acknowledged]
    assert history.check() == []
    lose_the_last(history)
    assert [finding.anomaly for finding in history.check()] == ["lost-write"]
    assert "acknowledged at partition 1 offset unknown" in history.check()[0].text


def test_a_record_that_nobody_was_promised_may_be_in_the_log() -> None:
    history = good()
    history.final[Place(1, 60)] = Record("a", 500)
    assert history.check() == []


def test_a_summary_counts_and_the_words_are_bounded() -> None:
    findings = [Finding("duplicate", str(number)) for number in range(SHOWN_MAX + 3)] + [Finding("lost-write", "x")]
    assert summary(findings) == f"lost-write=1 duplicate={SHOWN_MAX + 3}"
    lines = in_words(findings)
    assert len(lines) == SHOWN_MAX + 2
    assert lines[-1] == "duplicate: and 3 more"
    assert set(ANOMALIES) >= {"lost-write", "duplicate"}


def test_the_longest_silence_counts_the_ends_of_the_run() -> None:
    history = good()
    assert longest_silence_ms(history, 0, 60) == 10
    assert longest_silence_ms(history, 0, 500) == 450
    assert longest_silence_ms(History(), 100, 400) == 300
