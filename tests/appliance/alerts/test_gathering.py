"""The facts of a core that answers, is away, is of another version, or answers only some questions; and of reports."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from appliance.alerts import gathering
from appliance.alerts.facts import Facts, LastReport, Queued, Unknown
from appliance.alerts.gathering import Gatherer
from appliance.alerts.rules import judge
from appliance.live.models import Sample
from appliance.reports.preferences import yesterday
from appliance.reports.report_store import Period
from mailcore.config.alerts import Alerts
from mailcore.control.kept_content import new_certificate
from mailcore.faults import Code
from tests.answers import Exactly
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.live.answers import STARTED_AT, ages, answers, state
from tests.appliance.reports.made import make_report
from tests.config.test_waiting import written
from tests.eventually import eventually_blocking

pytestmark = pytest.mark.django_db

AT = 1_800_000_000.0


@pytest.fixture(autouse=True)
def places(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EVENTS_DIRECTORY, settings.REPORTS_DIRECTORY = tmp_path / "events", tmp_path / "reports"
    monkeypatch.setattr(gathering, "UNITS", tmp_path / "units")
    settings.PORTAL_DIRECTORY.mkdir(parents=True, exist_ok=True)


class Clock:
    def __init__(self) -> None:
        self.at = AT

    def __call__(self) -> float:
        return self.at


def told(**changed: Any) -> dict[str, Any]:
    outcomes = {
        "since": AT - 3_600, "senders": [], "senders_left_out": 0, "others_ended": 0, "others_bounced": 0, "hosts": [],
        "hosts_left_out": 0, "examined": 0, "note": "",
    }  # fmt: skip
    more = {"certificates": {"certificates": []}, "outcomes": {"done": True, "outcomes": outcomes}}
    return answers(**{**more, **changed})


def gather(**changed: Any) -> Facts:
    with FakeCore(told(**changed)):
        return Gatherer(wall=lambda: AT).gather()


def unknown(found: Facts) -> dict[str, Unknown]:
    return {name: value for name, value in vars(found).items() if isinstance(value, Unknown)}


def test_a_core_that_answers() -> None:
    found = gather()
    assert found.core_away == ""
    assert unknown(found).keys() - {"ages", "outcomes"} == {"queued"}, (
        "they need time; a thread may have read the others"
    )
    assert all(each.expected for each in unknown(found).values())
    assert not isinstance(found.disks, Unknown)
    assert [each.what for each in found.disks] == ["queue", "portal"]
    assert (found.disks[0].free_bytes, found.disks[0].reserve_bytes) == (40, 10)


def test_the_certificate_of_the_portal_is_watched_too(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "portal.pem"
    path.write_bytes(new_certificate(["portal.example.org"], 5, AT)[0])
    settings.PORTAL = replace(settings.PORTAL, tls_certificate=str(path))

    def causes(**changed: Any) -> list[str]:
        (found,) = (each for each in judge(gather(**changed), Alerts()) if each.rule == "certificate")
        return [f"{cause.summary} {cause.detail}" for cause in found.causes] + [found.unknown] * bool(found.unknown)

    (words,) = causes()
    assert words == f"The certificate {path} expires in 5 d. For the portal."
    of_receivers = {"path": str(path), "names": [], "not_after": AT + 1, "fault": ""}
    assert len(causes(certificates={"certificates": [of_receivers]})) == 1, "the same file has one alert"
    path.unlink()
    (words,) = causes()
    assert str(path) in words


def test_a_core_that_is_not_there_is_away_and_that_is_all() -> None:
    found = Gatherer().gather()
    assert isinstance(found.core_away, str)
    assert "Waypost is not running" in found.core_away
    assert all(each.expected for each in unknown(found).values())
    judged = {cause.key for each in judge(found, Alerts()) for cause in each.causes}
    assert judged == {"core_away"}


def test_a_manager_that_is_not_there_is_a_core_that_is_away() -> None:
    found = gather(state=Refusal("the manager is away", Code.UNAVAILABLE))
    assert found.core_away == "the manager is away"


@pytest.mark.parametrize("answer", [Exactly(pid=1), Refusal("no permission to use the control socket", Code.FORBIDDEN)])
def test_whether_the_core_is_away_may_not_be_known(answer: Any) -> None:
    found = gather(state=answer)
    assert isinstance(found.core_away, Unknown)
    assert not found.core_away.expected
    judged = {cause.key for each in judge(found, Alerts()) for cause in each.causes}
    assert "not_checked:core_away" in judged


@pytest.mark.parametrize("operation", ["destinations", "disks", "certificates", "size"])
def test_a_question_that_is_not_answered_alone_is_unknown_and_has_an_alert(operation: str) -> None:
    found = gather(**{operation: Refusal("the manager is busy", Code.UNAVAILABLE)})
    assert found.core_away == ""
    name = "queued" if operation == "size" else operation
    assert unknown(found)[name] == Unknown("the manager is busy")
    judged = {cause.key for each in judge(found, Alerts()) for cause in each.causes}
    assert any(key.startswith("not_checked:") for key in judged)


def test_the_queue_of_an_hour_before_is_kept_by_the_watch_itself() -> None:
    clock = Clock()
    gatherer = Gatherer(wall=clock)
    with FakeCore(told(state=state(queued=5))) as core:
        assert gatherer.gather().queued == Unknown("the queue was not counted an hour before", expected=True)
        gatherer.gather()
        assert len(core.asked("size")) == 1, "once a minute"
        clock.at += 3_600.0
        core.answers["state"] = state(queued=25, delivered=30, bounced=4, expired=2)
        assert gatherer.gather().queued == Queued(25, 5, AT, delivered=30, bounced=6)
        core.answers["state"] = state(queued=25, started_at=STARTED_AT + 1)
        assert gatherer.gather().queued == Queued(25, 5, AT), "the counts began again"
        clock.at += 3_600.0 + 16 * 60.0
        assert isinstance(gatherer.gather().queued, Unknown), "it is too old"
    assert [each.recipients for each in Sample.objects.all()] == [5, 25, 25]


def test_more_destinations_than_an_answer_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "NAMES_MAX", 1)
    named = {"destinations": {}, "without_mail": {}, "queued": {"smtp:a": 2}, "suspended": {}}
    size = {"messages": 3, "recipients": 3, "lanes": {}, "destinations": {"smtp:a": 2, "smtp:b": 1}}
    assert gather(destinations=named, size=size).queued_by_destination == {"smtp:a": 2, "smtp:b": 1}
    monkeypatch.setattr(gathering, "NAMES_MAX", 2)
    assert gather(destinations=named, size=size).queued_by_destination is None


def test_a_spare_has_no_core_that_is_away_and_one_that_cannot_be_one_has(settings: Any) -> None:
    """Before, the watch of a spare raised a critical alert for as long as it was one."""
    run = Path(settings.CONTROL_SOCKET).parent
    try:
        for is_in_order in (True, False):
            written(run, os.getpid(), "owner", is_in_order=is_in_order)
            found = Gatherer().gather()
            assert bool(found.core_away) is not is_in_order
            assert isinstance(found.state, Unknown)
            assert found.state.expected
            assert "this node is its spare" in found.state.why
    finally:
        (run / "children.json").unlink()


def test_a_node_that_waits_and_is_no_spare_is_away_though_others_answer_for_theirs(settings: Any) -> None:
    own = Path(settings.CONTROL_SOCKET).parent / "shards" / "00"
    try:
        for is_in_order in (True, False):
            written(own, os.getpid(), "owner", is_in_order=is_in_order)
            found = gather()
            assert not isinstance(found.state, Unknown)
            assert bool(found.core_away) is not is_in_order
    finally:
        (own / "children.json").unlink()


def test_without_the_database_the_growth_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OperationalError("database is locked")

    monkeypatch.setattr(Sample.objects, "filter", fail)
    monkeypatch.setattr(gathering, "in_force", fail)
    found = gather()
    assert unknown(found).keys() - {"ages", "outcomes"} == {"queued", "report"}
    assert all(each.expected for each in unknown(found).values())


def test_the_ages_are_counted_in_a_thread() -> None:
    oldest = {
        "queue_id": "1K0RDGV4BE900",
        "arrived_at": STARTED_AT,
        "sender": "",
        "destination": "",
        "state": "deferred",
    }
    gatherer = Gatherer()
    with FakeCore(told(ages=ages(oldest))) as core:
        gatherer.gather()

        def is_known() -> bool:
            return not isinstance(gatherer.gather().ages, Unknown)

        eventually_blocking(is_known)
        gatherer.gather()
        assert len(core.asked("ages")) <= 2
        core.answers["ages"] = ages() | {"manager_away": True, "note": "the manager is away; as of noon"}
        gatherer._ages._began = float("-inf")
        gatherer.gather()
        eventually_blocking(lambda: not is_known())


# -- reports


def report_now() -> LastReport | Unknown:
    return gathering._report(time.time())


def test_a_day_with_events_and_without_a_report_is_missing_until_it_is_made(settings: Any) -> None:
    assert report_now() == LastReport()
    last = yesterday("UTC")
    for day in (last, last - timedelta(days=2)):
        (settings.EVENTS_DIRECTORY / f"dt={day}").mkdir(parents=True)
    found = report_now()
    assert isinstance(found, LastReport)
    assert [day for day, _ in found.missing] == [last, last - timedelta(days=2)]
    assert [int(late_s // 86_400) for _, late_s in found.missing] == [0, 2]
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, last)
    found = report_now()
    assert isinstance(found, LastReport)
    assert (found.day, [day for day, _ in found.missing]) == (last, [last - timedelta(days=2)])


def test_an_earlier_day_that_turned_red_is_told_for_a_day(settings: Any) -> None:
    """A day was unknown, and made again as red when its late events were there: it is the newest report no more."""
    last, earlier = yesterday("UTC"), yesterday("UTC") - timedelta(days=2)
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, earlier, balances=None)
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, last, balances=False)
    found = report_now()
    assert isinstance(found, LastReport)
    assert (found.day, found.balances, found.late) == (last, False, ())
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, earlier, balances=False)
    (said,) = (settings.REPORTS_DIRECTORY / "gold" / f"day={earlier}").resolve().glob("report.json")
    for hours, days in ((1, [earlier]), (25, [])):
        said.write_text(json.dumps(json.loads(said.read_text()) | {"made_at": time.time() - hours * 3_600}))
        found = report_now()
        assert isinstance(found, LastReport)
        assert [day for day, _ in found.late] == days
    assert found.day == last


def test_a_server_that_makes_no_reports_misses_none(settings: Any, tmp_path: Path) -> None:
    (settings.EVENTS_DIRECTORY / f"dt={yesterday('UTC')}").mkdir(parents=True)
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "waypost-core.service").touch()
    assert report_now() == LastReport()
    (tmp_path / "units" / "waypost-worker.service").touch()
    assert report_now() != LastReport()


def test_a_report_that_cannot_be_read_is_unknown(settings: Any) -> None:
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, date(2026, 11, 18))
    for file in settings.REPORTS_DIRECTORY.rglob("report.json"):
        file.write_text("{")
    assert report_now() == Unknown("the report of 2026-11-18 cannot be read")


def test_a_directory_that_cannot_be_read_is_unknown(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EVENTS_DIRECTORY.mkdir()

    def forbidden(path: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as closed:
        closed.setattr("os.listdir", forbidden)
        assert report_now() == Unknown(f"{settings.EVENTS_DIRECTORY}: Permission denied")
