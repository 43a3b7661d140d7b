"""Ages of the queue from the days' arrivals."""

from __future__ import annotations

from typing import Any

from appliance.pipeline.ages import ages


def stretch(name: str, arrived_at: float | None, accepted: int, finished: int) -> dict[str, Any]:
    return {"stretch": name, "arrived_at": arrived_at, "accepted": accepted, "finished": finished}


def test_what_was_finished_on_a_later_day_is_not_queued_any_more() -> None:
    today = [stretch("A", None, 0, 3), stretch("B", 199_900.0, 5, 1)]
    yesterday = [stretch("A", 100_000.0, 10, 2)]
    table = ages([today, yesterday], end=200_000.0).to_pylist()
    assert {row["from_s"]: row["messages"] for row in table if row["messages"]} == {0: 4, 86_400: 5}
    assert table[-1]["to_s"] is None


def test_what_arrived_before_all_tables_is_left_out() -> None:
    table = ages([[stretch("A", None, 0, 7)]], end=200_000.0).to_pylist()
    assert sum(row["messages"] for row in table) == 0
