"""What needs an operator now: each cause once, the urgent ones first, and nothing that is not so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from appliance.alerts.models import Alert
from appliance.alerts.open_alerts import OpenAlerts
from appliance.status.needs import NEEDS_MAX, needs_of

AT = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
DEAD = {"words": "dead", "kind": "bad", "until": None}


def snapshot(**more: Any) -> dict[str, Any]:
    core = {"running": True, "notice": "", "as_of": None}
    return {"core": core, "processes": [], "disks": [], "trouble": []} | more


def trouble(name: str, queued: int = 5, badge: dict[str, Any] = DEAD) -> dict[str, Any]:
    return {"name": name, "text": name, "url": "/d/", "badges": [badge], "queued": queued, "reason": "refused"}


def alert(number: int, rule: str, summary: str, *, severity: str = "warning", acknowledged: bool = False) -> Alert:
    return Alert(
        pk=number, rule=rule, summary=summary, severity=severity, link="/why/", began_at=AT, opened_at=AT,
        acknowledged_at=AT if acknowledged else None, acknowledged_by="ann" if acknowledged else "",
    )  # fmt: skip


def texts(
    given: dict[str, Any], *alerts: Alert, fault: str = "", difference: int | None = 0, away: bool = False
) -> list[str]:
    needs, _ = needs_of(given, OpenAlerts(alerts, len(alerts), away=away), fault, difference)
    return [each.text for each in needs]


def test_a_spare_is_in_order_and_says_what_it_is() -> None:
    notice = "This node waits: shard north belongs to mx1; this node is its spare."
    for words, urgent in (("spare", False), ("waits", True)):
        core = {"running": False, "words": words, "notice": notice, "as_of": None}
        (need,), _ = needs_of(snapshot(core=core), OpenAlerts((), 0, away=False), "", 0)
        assert (need.text, need.urgent) == (notice, urgent)


def test_a_node_that_waits_and_is_no_spare_is_urgent_though_other_nodes_answer() -> None:
    core = {"running": True, "waits": "This node waits: the disk is full.", "notice": "", "as_of": None}
    (need,), _ = needs_of(snapshot(core=core), OpenAlerts((), 0, away=False), "", 0)
    assert (need.text, need.urgent, need.rule) == (core["waits"], True, "core_away")


def test_nothing_is_needed_where_nothing_is_wrong() -> None:
    calm = snapshot(
        processes=[{"name": "receiver-0", "pid": 7, "restarts": 3}],
        disks=[{"path": "/q", "full": False}],
        trouble=[
            trouble("smtp:a.example", queued=0),
            trouble("smtp:b.example", badge={"words": "suspended", "kind": "warn"}),
        ],
    )
    assert texts(calm) == []


def test_each_cause_is_listed_once_and_the_urgent_ones_first() -> None:
    bad = snapshot(
        core={"running": False, "notice": "The core does not answer", "as_of": 1.0},
        processes=[{"name": "manager", "pid": None, "restarts": 3}, {"name": "control", "pid": 7, "restarts": 0}],
        disks=[{"path": "/q", "full": True}],
        trouble=[trouble("smtp:a.example"), trouble("smtp:b.example")],
    )
    listed = texts(
        bad,
        alert(1, "destination_dead", "smtp:a.example takes no mail"),
        alert(2, "core_away", "The core is away", severity="critical"),
        fault="Deliveries go out one at a time",
        difference=-3,
        away=True,
    )
    assert listed == [
        "The core is away",
        "Deliveries go out one at a time",
        "manager does not run",
        "New mail is refused: the disk of /q is full",
        "The balance of the day is off by 3 recipients",
        "smtp:a.example takes no mail",
        "smtp:b.example takes no mail; queued: 5",
        "No rule of the alerts is checked now",
    ]


def test_what_was_acknowledged_is_still_listed_and_not_urgent_and_not_said_again() -> None:
    needs, more = needs_of(
        snapshot(trouble=[trouble("smtp:a.example")]),
        OpenAlerts(
            (alert(1, "destination_dead", "smtp:a.example is dead", severity="critical", acknowledged=True),), 1
        ),
        "",
        0,
    )
    assert [(each.text, each.urgent, each.words) for each in needs] == [
        ("smtp:a.example is dead", False, "acknowledged by ann")
    ]
    assert more == 0


def test_what_is_not_shown_is_counted() -> None:
    many = snapshot(trouble=[trouble(f"smtp:{number}.example") for number in range(NEEDS_MAX + 2)])
    alerts = OpenAlerts((alert(1, "bounces", "Much of the mail bounces"),), 4)
    needs, more = needs_of(many, alerts, "", None)
    assert (len(needs), more) == (NEEDS_MAX, 3 + 3)


def test_processes_of_a_core_that_does_not_run_are_no_causes_of_their_own() -> None:
    gone = snapshot(
        core={"running": False, "notice": "The core is not running.", "as_of": 1.0},
        processes=[{"name": name, "pid": None, "restarts": 0} for name in ("supervisor", "manager", "control")],
    )
    assert texts(gone) == ["The core is not running."]
