"""The events of the examples are what they say: the right answer follows from them, and they come as real ones do."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from examples import demo
from examples.shop import CHUNK, JITTER_SECONDS_MAX, ORDERS, PAYMENT_MINUTES_MAX, Day, Event

DAY = Day(order_count=2_000)


def contents(events: list[Event]) -> list[dict[str, Any]]:
    found = []
    for event in events:
        try:
            content = json.loads(event.value)
        except ValueError:
            continue
        if isinstance(content, dict):
            found.append(content)
    return found


def test_the_right_answer_follows_from_the_events() -> None:
    read = contents([event for chunk in DAY.chunks for event in chunk])
    orders = {content["order_id"]: content for content in read if "ordered_at" in content}
    payments = {content["order_id"]: content for content in read if "paid_at" in content}
    assert len(orders) == 2_000
    revenue: Counter[tuple[datetime, str]] = Counter()
    paid = set()
    for name, payment in payments.items():
        at = datetime.fromisoformat(orders[name]["ordered_at"])
        if datetime.fromisoformat(payment["paid_at"]) - at <= timedelta(minutes=PAYMENT_MINUTES_MAX):
            paid.add(name)
            revenue[at.replace(minute=0, second=0, microsecond=0), orders[name]["city"]] += orders[name]["cents"]
    assert revenue == DAY.revenue and paid == DAY.paid_orders
    assert len(paid) < len(payments) < len(orders)  # some are paid too late, and some never
    assert sum(DAY.malformed.values()) == DAY.event_count - len(read)


def test_events_come_out_of_order_but_not_by_more_than_a_watermark_of_ten_minutes_allows() -> None:
    newest, worst = DAY.chunks[0][0].at, timedelta(0)
    for chunk in DAY.chunks:
        for event in chunk:
            worst = max(worst, newest - event.at)
        newest = max(newest, *(event.at for event in chunk))
    assert timedelta(0) < worst <= timedelta(seconds=JITTER_SECONDS_MAX)
    assert worst + CHUNK < timedelta(minutes=10)
    assert min(event.at for event in DAY.closing) - newest > timedelta(hours=6)
    assert all(newest - event.at > timedelta(hours=5) for event in DAY.late)


def test_a_seed_makes_the_same_day_again() -> None:
    assert Day(order_count=50).chunks == Day(order_count=50).chunks != Day(order_count=50, seed=2).chunks


@pytest.mark.parametrize("wrong", ["nothing", "one result", "one result too many", "one paid order", "a late order"])
def test_the_demo_notices_what_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow

    output = Console(record=True, width=120)
    monkeypatch.setattr(demo, "console", output)
    orders = {
        content["order_id"]: content for content in contents([e for c in DAY.chunks for e in c if e.topic == ORDERS])
    }
    counts = Counter(
        (
            datetime.fromisoformat(orders[name]["ordered_at"]).replace(minute=0, second=0, microsecond=0),
            orders[name]["city"],
        )
        for name in DAY.paid_orders
    )
    results = [(*place, counts[place], cents) for place, cents in DAY.revenue.items()]
    lake = [{"order_id": name, "cents": orders[name]["cents"]} for name in sorted(DAY.paid_orders)]
    if wrong == "one result":
        results[3] = (*results[3][:3], results[3][3] + 1)
    elif wrong == "one result too many":
        results.append(results[0])
    elif wrong == "one paid order":
        lake.pop()
    elif wrong == "a late order":
        lake[5] = {"order_id": "late-1", "cents": lake[5]["cents"]}
    assert demo.show(DAY, results, pyarrow.Table.from_pylist(lake)) is (wrong == "nothing")
    assert ("WRONG" in output.export_text()) is (wrong != "nothing")
