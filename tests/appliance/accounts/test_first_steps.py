"""First steps: a given password is changed and a required second factor set up before anything else, whichever way is tried."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client, override_settings

from appliance.accounts.first_steps import OPEN_BEFORE, FirstStep, first_step_of, give_password
from appliance.accounts.models import GivenPassword
from appliance.accounts.permissions import set_rights
from appliance.api.scopes import Scope
from appliance.api.tokens import make
from appliance.common.first_administrator import first_administrator
from tests.appliance.accounts.sample_users import PASSWORD, client_of, sign_in, user
from tests.appliance.accounts.test_access import bystander, pages, path_of
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

OWN = "/accounts/password/"
FACTORS = "/accounts/two-factor/"
NEW = "an even longer password"
SECRET = "JBSWY3DPEHPK3PXP"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def demanded(*roles: str) -> Any:
    return override_settings(PORTAL=dataclasses.replace(settings.PORTAL, second_factor_for=roles))


def change_password(client: Client, old: str, new: str = NEW) -> int:
    client.get(OWN)
    return client.post(OWN, {"oldpassword": old, "password1": new, "password2": new}).status_code


def reached(client: Client) -> set[str]:
    """Names of the pages that a session reaches: they neither refuse it nor send it elsewhere."""
    number = bystander()
    found = set()
    for name, route in pages().items():
        if name.startswith("api:") or name == "account_logout":
            continue
        for method in ("get", "post"):
            answer = getattr(client, method)(path_of(route, number))
            answer.close()
            if answer.status_code not in (302, 403, 405):
                found.add(name)
    return found


def test_a_user_made_by_an_administrator_changes_the_password_first() -> None:
    boss = client_of("administrator")
    fields = {
        "username": "ina",
        "password1": PASSWORD,
        "password2": PASSWORD,
        "role": "operator",
        "why": "starts today",
    }
    assert boss.post("/admin/auth/user/add/", fields).status_code == 302
    client = Client()
    assert sign_in(client, "ina") == 302
    assert client.get("/audit/")["Location"] == OWN
    text = markup_of(client.get(OWN))
    assert "This password was given to you" in text
    assert "side" not in [each.split('"')[0] for each in text.split('nav class="')[1:]], "no sections to go to"
    assert change_password(client, PASSWORD, PASSWORD) == 200, "not the same again"
    assert client.get("/audit/").status_code == 302
    assert change_password(client, PASSWORD) == 302
    assert client.get("/audit/").status_code == 200
    assert sign_in(Client(), "ina", NEW) == 302


@pytest.mark.parametrize("step", list(FirstStep))
def test_nothing_else_is_reached_before(step: FirstStep) -> None:
    it = user("administrator")
    client = client_of("administrator")
    if step is FirstStep.PASSWORD:
        give_password(it)
    if step is FirstStep.WAY_IN:
        it.set_unusable_password()
        it.save()
        client = client_of("administrator")
    with demanded("administrator"):
        assert reached(client) <= OPEN_BEFORE[step]


def test_pieces_and_streams_are_refused_and_not_redirected() -> None:
    give_password(user("administrator"))
    client = client_of("administrator")
    assert client.get("/queue/", headers={"HX-Request": "true"}).status_code == 403
    for path in ("/live/stream", "/live/numbers", "/live/overview", "/destinations/live", "/destinations/smtp:a/live"):
        assert client.get(path).status_code == 403, path


def test_a_password_set_by_an_administrator_is_changed_first_and_stops_tokens_until_then() -> None:
    it = user("operator")
    text = make(it, "nightly", list(Scope), 30)[1]
    headers = {"Authorization": f"Bearer {text}"}
    assert Client().get("/api/v1/token", headers=headers).status_code == 200
    client_of("administrator").post(
        f"/admin/auth/user/{it.pk}/password/", {"new_password1": NEW, "new_password2": NEW, "why": "forgot it"}
    )
    answer = Client().get("/api/v1/token", headers=headers)
    assert answer.status_code == 403
    assert "change the password" in answer.json()["message"]
    client = Client()
    sign_in(client, "operator", NEW)
    assert client.get("/audit/")["Location"] == OWN
    assert change_password(client, NEW, "one of my own choice") == 302
    assert Client().get("/api/v1/token", headers=headers).status_code == 200


def test_a_user_made_by_the_http_api_changes_the_password_first_and_keeps_the_address() -> None:
    headers = {"Authorization": f"Bearer {make(user('administrator'), 'provisioning', list(Scope), 30)[1]}"}
    body = {"username": "ina", "password": PASSWORD, "role": "operator", "why": "starts today"}
    made = Client().post("/api/v1/users", body, content_type="application/json", headers=headers)
    assert made.status_code in (200, 201), made.content
    it = User.objects.get(username="ina")
    assert first_step_of(it) is FirstStep.PASSWORD
    User.objects.filter(pk=it.pk).update(email="ina@example.org")
    changed = Client().post(
        f"/api/v1/users/{it.pk}",
        {"first_name": "Ina", "why": "a test"},
        content_type="application/json",
        headers=headers,
    )
    assert changed.status_code == 200, changed.content
    assert User.objects.get(pk=it.pk).email == "ina@example.org"


def test_passwords_set_on_the_server_are_changed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    call_command("createsuperuser", username="boss", email="", interactive=False, verbosity=0)
    assert first_step_of(User.objects.get(username="boss")) is FirstStep.PASSWORD
    it = user("viewer")
    assert first_step_of(it) is None
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: NEW)
    call_command("changepassword", "viewer", stdout=io.StringIO())
    assert first_step_of(it) is FirstStep.PASSWORD
    assert sign_in(Client(), "viewer", NEW) == 302


@pytest.mark.parametrize("is_demo", [False, True])
def test_the_first_password_of_an_installation_is_changed_first_but_for_a_demo(is_demo: bool) -> None:
    User.objects.all().delete()
    password = first_administrator(is_demo=is_demo)
    client = Client()
    assert sign_in(client, "admin", password) == 302
    assert client.get("/audit/").status_code == (200 if is_demo else 302)
    assert GivenPassword.objects.exists() is not is_demo


@pytest.mark.parametrize(
    ("roles", "role", "is_kept_out"),
    [
        ((), "administrator", False),
        (("administrator",), "administrator", True),
        (("administrator",), "operator", False),
        (("viewer", "operator"), "viewer", True),
        (("viewer", "operator"), "administrator", False),
    ],
)
def test_a_role_demands_a_second_factor(roles: tuple[str, ...], role: str, is_kept_out: bool) -> None:
    user(role)
    client = Client()
    sign_in(client, role)
    with demanded(*roles):
        page = client.get("/reports/")
        assert page.status_code == (302 if is_kept_out else 200)
        if is_kept_out:
            assert page["Location"] == FACTORS
            assert "Your role requires a second factor" in markup_of(client.get(FACTORS))
            TOTP.activate(User.objects.get(username=role), SECRET)
            assert client.get("/reports/").status_code == 200


def test_recovery_codes_alone_are_no_second_factor() -> None:
    it = user("administrator")
    Authenticator.objects.create(user=it, type="recovery_codes", data={})
    with demanded("administrator"):
        assert first_step_of(it) is FirstStep.SECOND_FACTOR


def test_a_role_that_is_given_later_demands_it_at_once() -> None:
    it = user("viewer")
    with demanded("operator"):
        assert first_step_of(it) is None
        set_rights(it, "operator", bodies=False)
        assert first_step_of(User.objects.get(pk=it.pk)) is FirstStep.SECOND_FACTOR


def test_a_factor_that_an_administrator_removes_is_demanded_again() -> None:
    it = user("operator")
    TOTP.activate(it, SECRET)
    with demanded("operator"):
        assert first_step_of(it) is None
        client_of("administrator").post(f"/admin/auth/user/{it.pk}/two-factor/", {"why": "telephone lost"})
        client = Client()
        sign_in(client, "operator")
        assert client.get("/audit/")["Location"] == FACTORS


def test_a_new_password_does_not_get_around_the_second_factor() -> None:
    """The person who resets a password, or steals the new one, still lacks the code."""
    it = user("operator")
    TOTP.activate(it, SECRET)
    client_of("administrator").post(
        f"/admin/auth/user/{it.pk}/password/", {"new_password1": NEW, "new_password2": NEW, "why": "forgot it"}
    )
    client = Client()
    answer = client.post("/accounts/login/", {"login": "operator", "password": NEW})
    assert answer["Location"] == "/accounts/two-factor/code/"
    assert client.get(OWN)["Location"].startswith("/accounts/login/")
