"""Operation × role × scope, and tokens that are revoked, expired, of another scope, or whose user has changed since."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import TOTP
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.db import OperationalError
from django.db.models.query import QuerySet
from django.test import Client, override_settings
from django.utils import timezone

from appliance.accounts.roles import GROUPS
from appliance.api import authentication
from appliance.api.models import ApiToken
from appliance.api.operation import PREFIX
from appliance.api.scopes import LEAST_ROLE, Scope
from appliance.api.urls import OPERATIONS
from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import PASSWORD, client_of, user
from tests.appliance.api.access import TABLE
from tests.appliance.api.asking import ALL, ApiClient, client_with, code_of, token_for

pytestmark = pytest.mark.django_db

NOT_ALLOWED = (401, 403)


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def test_every_operation_is_in_the_table() -> None:
    said = {each.name: (each.method, set(each.scopes), each.least) for each in OPERATIONS}
    assert said == {name: (method, scopes, least) for name, (method, _, scopes, least) in TABLE.items()}, (
        "a new operation: say in tests/appliance/api/access.py who may ask for it"
    )


def wrong_answers(role: str, scope: Scope | None, names: Iterable[str]) -> Iterator[str]:
    """Yields each operation that answers a token of that role and scope otherwise than the table says."""
    client = client_with({scope} if scope else set(), role)
    for name in names:
        method, path, scopes, least = TABLE[name]
        may = bool(role) and GROUPS[role] >= least and (not scopes or scope in scopes)
        may = may and (name != "message_data" or role == "administrator")  # others need the right to read bodies
        status = client.ask(method, path).status_code
        if (status != 403) if not may else (status in (*NOT_ALLOWED, 405, 500)):
            yield f"{name} with the scope {scope} of {role or 'a user without a role'}: {status}"


def test_each_role_may_what_the_table_says_and_nothing_else() -> None:
    """With each scope that an operation names."""
    wrong: list[str] = []
    for role in ("", *GROUPS):
        for scope in (None, *Scope):
            named = [
                name for name, (_, _, scopes, _) in TABLE.items() if (scope in scopes if scopes else scope is None)
            ]
            wrong += wrong_answers(role, scope, named)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "role",
    [
        "administrator",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("", *GROUPS) if each != "administrator"),
    ],
)
def test_each_scope_allows_what_the_table_says_and_nothing_else(role: str) -> None:
    """The administrator may all that a scope allows."""
    wrong = [words for scope in (None, *Scope) for words in wrong_answers(role, scope, TABLE)]
    assert not wrong, "\n".join(wrong)


def test_a_scope_is_offered_to_the_lowest_role_that_can_use_it() -> None:
    least = {scope: min(each.least for each in OPERATIONS if set(each.scopes) == {scope}) for scope in Scope}
    assert least == LEAST_ROLE


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Bearer wpt_unknown", "Basic YTpi", "Bearer \x00"])
def test_nothing_is_answered_without_a_valid_token(header: str | None) -> None:
    client = Client(enforce_csrf_checks=True)
    for name, (method, path, _, _) in TABLE.items():
        cache.clear()
        headers = {} if header is None else {"authorization": header}
        response = getattr(client, method.lower())(PREFIX + path, headers=headers)
        assert code_of(response)[:2] == (401, "forbidden"), name
        assert response["WWW-Authenticate"] == "Bearer"


def test_a_session_is_no_proof() -> None:
    client = client_of("administrator")
    for name, (method, path, _, _) in TABLE.items():
        assert getattr(client, method.lower())(PREFIX + path).status_code == 401, name


def test_a_session_of_another_user_does_not_lend_its_role() -> None:
    """A browser that is signed in as an administrator and sends a viewer's token asks as the viewer."""
    browser = client_of("administrator")
    _, text = token_for(user("viewer"))
    headers = {"authorization": f"Bearer {text}"}
    assert browser.get(f"{PREFIX}/token", headers=headers).json()["user"] == "viewer"
    assert browser.get(f"{PREFIX}/audit", headers=headers).status_code == 403


def test_a_session_whose_user_lacks_a_second_factor_does_not_send_a_program_away() -> None:
    browser = client_of("administrator")
    headers = {"authorization": f"Bearer {token_for(user('viewer'))[1]}"}
    with override_settings(PORTAL=_portal(second_factor_for=("administrator",))):
        assert browser.get(f"{PREFIX}/token", headers=headers).json()["user"] == "viewer"
        assert "waypost_seen" not in browser.session, "a program prolongs no session"
        assert browser.get("/audit/").status_code == 302


def ends(token: ApiToken, how: str) -> None:
    """Makes the token one that is not valid."""
    it = token.user
    match how:
        case "revoked":
            ApiToken.objects.filter(pk=token.pk).update(revoked_at=timezone.now())
        case "expired":
            ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        case "disabled":
            User.objects.filter(pk=it.pk).update(is_active=False)
        case "deleted":
            it.delete()
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize("how", ["revoked", "expired", "disabled", "deleted"])
def test_a_token_that_has_ended_is_refused_everywhere(how: str) -> None:
    token, text = token_for(user("administrator", "leaving"))
    client = ApiClient(text)
    assert client.get("/token").status_code == 200
    ends(token, how)
    for name, (method, path, _, _) in TABLE.items():
        cache.clear()
        assert client.ask(method, path).status_code == 401, name


@pytest.mark.parametrize("how", ["revoked", "expired", "disabled"])
def test_the_audit_has_the_refusal_of_a_known_token_once_an_hour(how: str) -> None:
    token, text = token_for(user("operator"), name="backup")
    ends(token, how)
    client = ApiClient(text)
    for _ in range(3):
        assert client.get("/token").status_code == 401
    entry = Entry.objects.get(action="token.refused")
    assert (entry.who, entry.subject, entry.outcome) == ("operator", "backup", "refused")
    ApiToken.objects.filter(pk=token.pk).update(refused_at=timezone.now() - timedelta(hours=2))
    client.get("/token")
    assert Entry.objects.filter(action="token.refused").count() == 2


def test_the_role_is_that_of_the_moment_of_use() -> None:
    it = user("operator")
    client = ApiClient(token_for(it)[1])
    path = TABLE["audit"][1]
    assert client.get(path).status_code == 200
    it.groups.set([Group.objects.get(name="viewer")])
    assert code_of(client.get(path))[:2] == (403, "forbidden")
    it.groups.clear()
    assert client.get("/token").status_code == 403
    it.groups.set([Group.objects.get(name="administrator")])
    assert client.get(path).status_code == 200


def test_a_second_factor_that_is_required_is_required_for_tokens_too() -> None:
    it = user("administrator")
    client = ApiClient(token_for(it)[1])
    assert client.get("/token").status_code == 200
    with override_settings(PORTAL=_portal(second_factor_for=("administrator",))):
        assert client.get("/token").status_code == 403
        TOTP.activate(it, "JBSWY3DPEHPK3PXP")
        assert client.get("/token").status_code == 200


def _portal(**values: Any) -> object:
    return dataclasses.replace(settings.PORTAL, **values)


def test_requests_of_a_token_are_limited_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [60_000_000.0]
    monkeypatch.setattr("appliance.api.tokens.time.time", lambda: now[0])
    client, other = client_with({Scope.READ}), client_with({Scope.READ}, name="other")
    with override_settings(PORTAL=_portal(api_requests_per_minute=10)):
        assert [client.get("/token").status_code for _ in range(10)] == [200] * 10
        now[0] += 18
        refused = client.get("/token")
        assert code_of(refused)[:2] == (429, "busy")
        assert refused["Retry-After"] == "42"
        assert other.get("/token").status_code == 200
        now[0] += 42
        assert client.get("/token").status_code == 200


def test_a_refused_request_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.api.tokens.time.time", lambda: 60_000_000.0)  # no minute ends meanwhile
    client = client_with()
    with override_settings(PORTAL=_portal(api_requests_per_minute=10)):
        for _ in range(10):
            client.get("/token")
        body = {"operation": "hold", "queue_ids": ["0123456789ABCDEF"], "why": "a test"}
        assert client.post("/queue/changes", body).status_code == 429
    assert not Entry.objects.filter(action="queue.hold").exists()


def test_unknown_tokens_are_limited_by_address_and_a_valid_one_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    minute = time.time() // 60 * 60
    monkeypatch.setattr("appliance.api.authentication.time.time", lambda: minute)  # no minute ends meanwhile
    unknown, known = ApiClient("wpt_" + "a" * 43), client_with({Scope.READ})
    statuses = [unknown.get("/token").status_code for _ in range(authentication.UNKNOWN_PER_MINUTE + 1)]
    assert statuses[:-1] == [401] * authentication.UNKNOWN_PER_MINUTE
    assert statuses[-1] == 429
    assert unknown.get("/token")["Retry-After"] == "60"
    assert known.get("/token").status_code == 200


def test_the_last_use_is_noted() -> None:
    token, text = token_for(user("viewer"))
    assert token.last_used_at is None
    ApiClient(text).get("/token")
    used = ApiToken.objects.get(pk=token.pk)
    assert used.last_used_at is not None
    assert used.last_address == "127.0.0.1"


def test_looks_continue_while_the_database_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_with(ALL)

    def full(*_: object, **__: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(QuerySet, "update", full)
    assert client.get("/token").status_code == 200


def test_an_address_without_an_operation_and_a_wrong_method_are_json() -> None:
    client = client_with()
    assert code_of(client.get("/nothing/here"))[:2] == (404, "not_found")
    response = client.client.delete(f"{PREFIX}/overview", headers=client.headers)
    assert code_of(response)[:2] == (405, "invalid")
    assert response["Allow"] == "GET"


def test_the_password_of_the_user_is_no_token() -> None:
    user("operator")
    assert ApiClient(PASSWORD).get("/token").status_code == 401
