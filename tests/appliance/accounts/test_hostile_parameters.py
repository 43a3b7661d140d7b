"""Every page, asked with numbers that fit nowhere and text that is no number, in every parameter it looks at: a page, a word of
what is wrong, or nothing, but never a fault of the portal's own.

The parameters are those a page was seen to look for, so a new one is asked for without being named here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.http import QueryDict
from django.test import Client

from tests.appliance.accounts.access import TABLE, Least
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.accounts.test_access import bystander, pages, path_of
from tests.appliance.fake_core import Parts
from tests.appliance.tuning.core import LIMIT, TuningCore

pytestmark = pytest.mark.django_db

HUGE = "9" * 26  # more than 64 bits
HOSTILE = (
    HUGE, f"-{HUGE}", str(1 << 63), str((1 << 63) - 1), str(1 << 31), "9" * 5_000, "-1", "0", "1e400", "nan", "inf", "²", "٣",
    "", "\0", "a\0b", "[]", f"[{HUGE}]", '{"a": 1}', "9999-12-31T23:59:59", "0001-01-01", "2026-13-45", f"{HUGE}d",
    f"{HUGE}G", "%s", "../..", "=1+1", "1,2", f"1,{HUGE}",
)  # fmt: skip
LOOKUPS = ("__in", "", "__range", "__regex", "__nothing")
SHORTLY = ("", HUGE, "nan", "\0", "0001-01-01")
NOT_ASKED = frozenset(("account_logout", "live:stream"))  # ends the session; never ends
SHOWN = {LIMIT: {"value": 20, "origin": "configuration"}}
ITEM: dict[str, Any] = {"items": [], "cursor": None, "examined": 0, "manager_away": False, "note": ""}


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of parameters that were looked for since the test emptied it."""
    names: set[str] = set()

    def noted(method: str) -> None:
        original = getattr(QueryDict, method)

        def asked(self: QueryDict, key: object, *rest: Any, **named: Any) -> Any:
            if isinstance(key, str):
                names.add(key)
            return original(self, key, *rest, **named)

        monkeypatch.setattr(QueryDict, method, asked)

    for each in ("get", "getlist", "__getitem__", "__contains__"):
        noted(each)
    return names


@pytest.fixture
def core() -> Iterator[TuningCore]:
    with TuningCore() as running:
        transports = running.answers["transports"]
        running.answers |= {
            "destinations": {"destinations": {}, "without_mail": {}, "queued": {}, "suspended": {}},
            "transports": lambda given: {"scopes": {given["destination"]: SHOWN}} if given else transports(given),
            "list": ITEM, "search": Parts([ITEM | {"done": True}]), "routes": {"transports": ["smtp"], "routes": []},
        }  # fmt: skip
        yield running


@pytest.fixture
def boss() -> Client:
    client = client_of("administrator")
    client.raise_request_exception = False
    return client


def faults_of(client: Client, method: str, path: str, given: dict[str, str]) -> Iterator[str]:
    response = getattr(client, method.lower())(path, given)
    if response.status_code == 500:
        error = response.exc_info[1] if getattr(response, "exc_info", None) else ""
        yield f"{method} {path} { ({name: text[:40] for name, text in given.items()}) }: {error!r}"
    response.close()


def asked(client: Client, method: str, path: str, looked_for: set[str], values: tuple[str, ...]) -> Iterator[str]:
    """All of its parameters at once, then each of them alone; some are only looked for when others are there."""
    known: set[str] = set()
    for value in (*values, HUGE):
        looked_for.clear()
        yield from faults_of(client, method, path, dict.fromkeys(known, value))
        known |= looked_for - {"csrfmiddlewaretoken"}
    for name in sorted(known):
        for value in values if values is HOSTILE else (HUGE,):
            yield from faults_of(client, method, path, {name: value})


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "values",
    [SHORTLY, pytest.param(HOSTILE, marks=(pytest.mark.long, pytest.mark.timeout(900)))],
    ids=["shortly", "all"],
)
def test_no_parameter_of_any_page_is_a_fault(
    core: TuningCore, boss: Client, looked_for: set[str], method: str, values: tuple[str, ...]
) -> None:
    number = bystander()
    found: list[str] = []
    for name, route in pages().items():
        if name not in NOT_ASKED and TABLE[name][method == "POST"] is not Least.NEVER:
            found += asked(boss, method, path_of(route, number), looked_for, values)
    assert not found, "\n".join(found[:40])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_number_in_a_path_is_a_fault(core: TuningCore, boss: Client, method: str) -> None:
    found: list[str] = []
    for name, route in pages().items():
        if name not in NOT_ASKED and "<" in route and TABLE[name][method == "POST"] is not Least.NEVER:
            for value in (HUGE, "9" * 5_000):
                found += faults_of(boss, method, "/" + re.sub(r"<(?:\w+:)?\w+>", value, route), {})
    assert not found, "\n".join(found[:40])


def test_the_administration_is_filtered_by_nothing_but_what_it_offers(boss: Client) -> None:
    lookups = itertools.cycle(LOOKUPS)
    for model in admin.site._registry:
        path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        for field in ("id", "pk", *(each.name for each in model._meta.get_fields())):
            lookup = next(lookups)
            status = boss.get(path, {field + lookup: HUGE}).status_code
            assert status == 400, f"{path}?{field}{lookup}: {status}"
        assert boss.get(path, {"p": HUGE}).status_code in (200, 302)
        assert boss.get(path, {"o": f"-{HUGE}.{HUGE}", "q": HUGE}).status_code == 200
