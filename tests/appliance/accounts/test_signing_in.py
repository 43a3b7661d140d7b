"""Signing in: with a password, with TOTP; what is refused, counted, locked, and what the audit says of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import PASSWORD, client_of, sign_in, user

pytestmark = pytest.mark.django_db

INSIDE = "/audit/"  # a page of the portal that asks the core nothing


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def actions() -> list[tuple[str, str]]:
    return [(entry.action, entry.who) for entry in Entry.objects.order_by("id")]


def code(secret: str, ahead: int = 0) -> str:
    return str(format_hotp_value(hotp_value(secret, int(time.time()) // 30 + ahead)))


def enrol(client: Client) -> tuple[str, list[str]]:
    """The secret and the recovery codes, by the pages."""
    page = client.get("/accounts/two-factor/activate/")
    if page.status_code == 302:
        assert client.post(page["Location"], {"password": PASSWORD}).status_code == 302
        page = client.get("/accounts/two-factor/activate/")
    text = page.content.decode()
    assert 'src="data:image/svg+xml;base64,' in text
    found = re.search(r'id="totp-secret"[^>]*>(\w+)<', text)
    assert found is not None
    secret = found.group(1)
    codes = client.post("/accounts/two-factor/activate/", {"code": code(secret)}, follow=True).content.decode()
    return secret, re.findall(r"<li><code>([^<\s]+)</code></li>", codes)


def test_a_password_signs_in_and_the_audit_has_it() -> None:
    user("operator")
    client = Client()
    assert client.get(INSIDE)["Location"] == f"/accounts/login/?next={INSIDE}"
    assert sign_in(client, "operator") == 302
    assert client.get(INSIDE).status_code == 200
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get(INSIDE).status_code == 302
    assert actions() == [("sign_in", "operator"), ("sign_out", "operator")]


def test_passwords_are_kept_as_argon2() -> None:
    assert settings.PASSWORD_HASHERS[-1].endswith("Argon2PasswordHasher")


def test_signing_out_takes_a_post() -> None:
    client = client_of("operator")
    assert client.get("/accounts/logout/").status_code == 200
    assert client.get(INSIDE).status_code == 200


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "http:///evil.example",
        "\t//evil.example",
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(target: str) -> None:
    user("operator")
    answer = Client().post("/accounts/login/", {"login": "operator", "password": PASSWORD, "next": target})
    assert answer.status_code == 302
    assert answer["Location"] == "/"
    answer = client_of("operator").post("/accounts/logout/", {"next": target})
    assert "evil" not in answer["Location"]
    assert "javascript" not in answer["Location"]


def test_a_page_of_our_own_is_gone_to_after_signing_in() -> None:
    user("operator")
    answer = Client().post("/accounts/login/", {"login": "operator", "password": PASSWORD, "next": INSIDE})
    assert answer["Location"] == INSIDE


def test_the_session_gets_a_new_name_when_somebody_signs_in() -> None:
    user("operator")
    client = Client()
    session = client.session
    session["planted"] = True
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = str(session.session_key)
    sign_in(client, "operator")
    assert client.cookies[settings.SESSION_COOKIE_NAME].value != session.session_key
    other = Client()
    other.cookies[settings.SESSION_COOKIE_NAME] = str(session.session_key)
    assert other.get(INSIDE).status_code == 302


def test_the_session_is_for_this_site_and_no_script() -> None:
    user("operator")
    client = Client()
    sign_in(client, "operator")
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Lax"
    assert cookie["path"] == "/"
    assert client.cookies[settings.CSRF_COOKIE_NAME]["httponly"] is True


def test_wrong_passwords_lock_this_user_for_this_address_only() -> None:
    user("operator")
    client = Client()
    for _ in range(settings.PORTAL.lockout_failures - 1):
        assert sign_in(client, "operator", "wrong") == 200
    locked = client.post("/accounts/login/", {"login": "operator", "password": "wrong"})
    assert locked.status_code == 429
    assert "Locked" in locked.content.decode()
    assert sign_in(client, "operator") == 429, "the right password does not help now"
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert sign_in(elsewhere, "operator") == 302, "nobody can lock somebody else out"
    failures = settings.PORTAL.lockout_failures
    names = [name for name, _ in actions()]
    assert names[:-1].count("sign_in.failed") == failures + 1
    assert names.count("sign_in.locked") == 1
    assert names[-1] == "sign_in"


def test_a_name_nobody_has_is_not_written_down(caplog: pytest.LogCaptureFixture) -> None:
    assert sign_in(Client(), "correct horse battery staple", "x") == 200
    assert actions() == [("sign_in.failed", "(no such user)")]
    assert "horse" not in str(list(Entry.objects.values()))
    assert "horse" not in caplog.text


def test_who_tries_many_names_is_slowed_down() -> None:
    client = Client()
    statuses = {sign_in(client, f"name{each}", "x") for each in range(62)}
    assert statuses == {200, 429}
    assert Entry.objects.count() <= 60


def test_a_deactivated_user_learns_nothing_and_is_not_let_in() -> None:
    gone = user("operator")
    gone.is_active = False
    gone.save()
    answer = Client().post("/accounts/login/", {"login": "operator", "password": PASSWORD})
    assert answer.status_code == 200
    assert "inactive" not in answer.content.decode()


def test_totp_is_set_up_and_asked_for(django_capture_on_commit_callbacks: Callable[..., Any]) -> None:
    user("operator")
    client = Client()
    sign_in(client, "operator")
    with django_capture_on_commit_callbacks(execute=True):
        secret, codes = enrol(client)
    assert len(codes) == 10
    assert secret not in str(Authenticator.objects.get(type="totp").data), "kept in the clear"
    cache.clear()  # the code of the setting up counts as used
    other = Client()
    assert (
        other.post("/accounts/login/", {"login": "operator", "password": PASSWORD})["Location"]
        == "/accounts/two-factor/code/"
    )
    assert other.get(INSIDE).status_code == 302, "not signed in with half of it"
    assert other.get("/accounts/two-factor/code/").status_code == 200
    assert other.post("/accounts/logout/", {"next": "/accounts/login/"})["Location"] == "/accounts/login/"
    assert other.get("/accounts/login/").status_code == 200, "one may begin again, as another user"
    sign_in(other, "operator")
    used = code(secret)
    assert other.post("/accounts/two-factor/code/", {"code": used}).status_code == 302
    assert other.get(INSIDE).status_code == 200
    again = Client()
    sign_in(again, "operator")
    assert again.post("/accounts/two-factor/code/", {"code": used}).status_code == 200, "a code counts once"
    assert again.post("/accounts/two-factor/code/", {"code": codes[0]}).status_code == 302
    assert again.get(INSIDE).status_code == 200
    third = Client()
    sign_in(third, "operator")
    assert third.post("/accounts/two-factor/code/", {"code": codes[0]}).status_code == 200, "so does a recovery code"
    assert ("user.totp", "operator") in actions()


def test_the_code_of_the_enrolment_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)  # its 30 s do not end in this test
    user("operator")
    first = Client()
    sign_in(first, "operator")
    secret, _ = enrol(first)
    second = Client()
    sign_in(second, "operator")
    assert second.post("/accounts/two-factor/code/", {"code": code(secret)}).status_code == 200
    assert second.get(INSIDE).status_code == 302, "the code was used to enrol"


def test_codes_cannot_be_tried_for_long() -> None:
    user("operator")
    first = Client()
    sign_in(first, "operator")
    secret, _ = enrol(first)
    cache.clear()
    client = Client()
    statuses = []
    for each in range(settings.PORTAL.lockout_failures + 1):
        sign_in(client, "operator")  # a right password in between does not help
        statuses.append(client.post("/accounts/two-factor/code/", {"code": f"{each:06}"}).status_code)
    assert statuses[-2] == 429
    assert client.post("/accounts/two-factor/code/", {"code": code(secret)}).status_code in (302, 429)
    assert client.get(INSIDE).status_code == 302
    assert ("sign_in.locked", "operator") in actions()


def test_the_password_of_an_open_page_cannot_be_tried_for_long() -> None:
    client = client_of("operator")
    statuses = [
        client.post("/accounts/reauthenticate/?next=/audit/", {"password": "wrong"}).status_code
        for _ in range(settings.PORTAL.lockout_failures)
    ]
    assert statuses[-1] == 429
    assert client.post("/accounts/reauthenticate/", {"password": PASSWORD}).status_code == 429


def test_totp_is_turned_off_with_the_password_and_not_where_it_is_required(settings: object) -> None:
    user("administrator")
    client = Client()
    sign_in(client, "administrator")
    enrol(client)
    assert client.get("/accounts/two-factor/deactivate/").status_code == 200
    require(settings, "administrator")
    assert client.post("/accounts/two-factor/deactivate/").status_code == 200
    assert Authenticator.objects.filter(type="totp").exists()
    require(settings)
    assert client.post("/accounts/two-factor/deactivate/").status_code == 302
    assert not Authenticator.objects.exists()


def require(settings: object, *roles: str) -> None:
    """[portal] second_factor_for, for this test."""
    given = settings.PORTAL  # type: ignore[attr-defined]
    settings.PORTAL = replace(given, second_factor_for=roles)  # type: ignore[attr-defined]


def test_a_changed_password_ends_the_other_sessions() -> None:
    user("operator")
    here, there = Client(), Client()
    sign_in(here, "operator")
    sign_in(there, "operator")
    page = here.get("/accounts/password/")
    assert page.status_code in (200, 302)
    if page.status_code == 302:
        here.post(page["Location"], {"password": PASSWORD})
    new = "an even longer password"
    answer = here.post("/accounts/password/", {"oldpassword": PASSWORD, "password1": new, "password2": new})
    assert answer.status_code == 302
    assert here.get(INSIDE).status_code == 200
    assert there.get(INSIDE).status_code == 302
    assert ("user.password", "operator") in actions()
    assert User.objects.get(username="operator").check_password(new)
