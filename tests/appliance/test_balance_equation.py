"""The terms of the balance equation stand once: a change of one term changes every place that shows or checks a balance."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.conf import settings

import mailcore.balance
from appliance.live.balance import balance_of as live_balance
from appliance.reports.content import content_of
from appliance.reports.preferences import in_force
from appliance.reports.report_store import Period, report_of
from appliance.reports.text import as_text
from mailcore.balance import Scope, difference, ends, equation, terms
from mailcore.doctor import balance as doctor_balance
from mailcore.envelope import Status
from mailcore.manager.outcomes import Balance
from tests.answers import state
from tests.appliance.live.test_samples import midnight, snapshot
from tests.appliance.reports.made import make_report, reports_directory

__all__ = ["reports_directory"]

pytestmark = pytest.mark.django_db
DAY = date(2026, 11, 18)


@pytest.fixture
def bounced_counts_as_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [
        replace(term, sign=+1, label="BROKEN") if term.name == "bounced" else term for term in mailcore.balance.TERMS
    ]
    monkeypatch.setattr(mailcore.balance, "TERMS", tuple(broken))


def counted() -> Balance:
    balance = Balance()
    balance.late = [3, 7]
    balance.by_status[Status.BOUNCED] = 2
    return balance


def managers() -> dict[str, int]:
    return counted().terms(3, 5).recipients


def overview() -> Any:
    began = midnight()
    return live_balance(snapshot(began + 60, began + 50, queued=5, at_start=7, bounced=2))


def doctors() -> str:
    answer = counted().terms(3, 5)
    host = cast(Any, SimpleNamespace(state=state(balance=answer), settings=SimpleNamespace(home=Path("/nowhere"))))
    return next(each.found for each in doctor_balance.look(host) if each.what == "recipients")


def test_the_equation_of_each_scope() -> None:
    assert equation(Scope.RECIPIENTS) == (
        "queued at the start + accepted + undeleted = delivered + bounced + expired + deleted + lost to damage"
        " + still queued"
    )
    assert equation(Scope.MESSAGES) == (
        "queued at the start + accepted + undeleted = finished + deleted + lost to damage + still queued"
    )
    assert equation(Scope.REPORT) == (
        "queued at the start + accepted = delivered + bounced + returned without attempt + expired + deleted"
        " + queued at the end"
    )
    assert ends(Scope.REPORT) == ["delivered", "bounced", "returned", "expired", "deleted"]


@pytest.mark.parametrize("scope", Scope)
def test_one_unit_too_many_of_any_term_shows(scope: Scope) -> None:
    balanced = {term.name: 0 for term in terms(scope)}
    assert difference(scope, balanced) == 0
    for term in terms(scope):
        assert difference(scope, balanced | {term.name: 1}) == term.sign


def test_all_balances_agree(reports_directory: Path) -> None:
    assert managers()["difference"] == 0
    assert overview().difference == 0
    assert "2 bounced" in doctors()
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, DAY)
    report = report_of(Period.DAY, DAY)
    assert report is not None
    assert not report.is_damaged


@pytest.mark.usefixtures("bounced_counts_as_arrival")
def test_a_broken_term_changes_every_balance(reports_directory: Path) -> None:
    assert managers()["difference"] == 4  # twice the two bounces
    assert overview().difference == 4
    assert any("BROKEN" in label for _, label, _ in overview().rows)
    assert "2 BROKEN" in doctors()
    make_report(settings.REPORTS_DIRECTORY, Period.DAY, DAY)
    report = report_of(Period.DAY, DAY)
    assert report is not None
    assert report.is_damaged
    content = content_of(report, in_force().writing)
    assert [label for label, _ in content.balance.left] == ["queued at the start", "accepted", "BROKEN"]
    assert "BROKEN" in as_text(content, [], in_force().writing, "")
