"""Single sign-on against a provider on a loopback port: who gets in, with which role, and every way in that is none."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import http.client
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from allauth.mfa.totp.internal.auth import TOTP
from cryptography.hazmat.primitives import serialization
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from appliance.accounts.first_steps import FirstStep, first_step_of, give_password
from appliance.accounts.invitations import digest_of
from appliance.accounts.models import Identity, Invitation
from appliance.accounts.oidc import views
from appliance.accounts.permissions import role_name
from appliance.accounts.session_store import Session
from appliance.accounts.sessions import sessions_of
from appliance.audit.models import Entry
from mailcore.config.oidc import Oidc
from tests.appliance.accounts.fake_provider import CLIENT, SECRET, FakeProvider
from tests.appliance.accounts.sample_users import PASSWORD, sign_in, user
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

BEGIN, BACK = "/accounts/oidc/", "/accounts/oidc/callback/"
INSIDE = "/audit/"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()
    views._provider.cache_clear()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def oidc(provider: FakeProvider, tmp_path: Path, settings: Any) -> Any:
    """The settings, which a test changes by ``configured``."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    settings.OIDC = Oidc(
        issuer=provider.issuer,
        client_id=CLIENT,
        client_secret_file=str(tmp_path / "secret"),
        name="Example Login",
        timeout_s=2.0,
    )
    return settings


def configured(oidc: Any, **values: Any) -> None:
    oidc.OIDC = dataclasses.replace(oidc.OIDC, **values)


def member(role: str = "operator", address: str = "operator@example.org") -> User:
    it = user(role)
    it.email = address
    it.save()
    return it


def go(client: Client, path: str = BEGIN) -> str:
    """Goes to the provider as a browser does; returns the address that it sends back to."""
    answer = client.get(path)
    assert answer.status_code == 302, answer.content
    return back_from(answer["Location"])


def back_from(place: str) -> str:
    parts = urlsplit(place)
    connection = http.client.HTTPConnection(parts.netloc, timeout=5)
    connection.request("GET", f"{parts.path}?{parts.query}")
    back = connection.getresponse().headers["Location"]
    connection.close()
    return str(back).removeprefix("http://testserver")


def through(client: Client, path: str = BEGIN) -> Any:
    """The whole way; the portal's answer at its end."""
    return client.get(go(client, path))


def is_in(client: Client) -> bool:
    return client.get(INSIDE).status_code in (200, 403)


def words() -> str:
    return Entry.objects.filter(action="sign_in.failed").order_by("-id").values_list("words", flat=True)[0]


def test_a_user_with_a_verified_address_is_linked_once_and_found_by_subject_from_then_on(
    provider: FakeProvider, oidc: Any
) -> None:
    it = member()
    client = Client()
    answer = through(client, f"{BEGIN}?next={INSIDE}")
    assert answer["Location"] == INSIDE
    assert is_in(client)
    assert Entry.objects.get(action="user.link").subject == "operator"
    assert [each.how for each in sessions_of(it)] == ["single sign-on"]
    assert "Example Login" in markup_of(Client().get("/accounts/login/"))
    it.email = "moved@example.org"
    it.save()
    provider.person |= {"email": "also.moved@example.org"}
    assert through(Client())["Location"] == "/"
    assert Identity.objects.get().user == it


def test_an_identity_stays_with_its_user_also_when_its_address_becomes_that_of_another(
    provider: FakeProvider, oidc: Any
) -> None:
    it = member()
    through(Client())
    other = member("administrator", "boss@example.org")
    provider.person["email"] = "boss@example.org"
    client = Client()
    through(client)
    assert [each.user for each in Identity.objects.all()] == [it]
    assert not sessions_of(other)


@pytest.mark.parametrize("mark", [False, None, "false", 1, "yes"])
def test_an_address_that_is_not_verified_finds_nobody(provider: FakeProvider, oidc: Any, mark: object) -> None:
    member()
    provider.changed["email_verified"] = mark
    client = Client()
    answer = through(client)
    assert answer.status_code == 403
    assert "has not verified your mail address" in markup_of(answer)
    assert not is_in(client)
    assert not Identity.objects.exists()


def test_a_verified_address_does_not_lend_its_mark_to_the_address_of_the_userinfo(
    provider: FakeProvider, oidc: Any
) -> None:
    member()
    provider.changed = {"email": None, "email_verified": True}
    provider.userinfo = {"sub": "7", "email": "operator@example.org"}
    assert through(Client()).status_code == 403
    provider.userinfo = {"sub": "7", "email": "operator@example.org", "email_verified": True}
    assert through(Client()).status_code == 302


def test_the_userinfo_of_another_person_is_not_believed(provider: FakeProvider, oidc: Any) -> None:
    member()
    provider.changed = {"email": None}
    provider.userinfo = {"sub": "8", "email": "operator@example.org", "email_verified": True}
    assert through(Client()).status_code == 403
    assert "another person" in words()


def test_nobody_is_found_without_an_account(provider: FakeProvider, oidc: Any) -> None:
    user("operator")  # without an address
    for address in ("", "stranger@example.org", "operator@example.org\n", "OPERATOR@EXAMPLE.ORG\u0131"):
        provider.person["email"] = address
        client = Client()
        assert through(client).status_code == 403, address
        assert not is_in(client)
    assert User.objects.count() == 1


def test_letters_that_a_database_takes_for_the_same_are_not(provider: FakeProvider, oidc: Any) -> None:
    member("operator", "m\u0131ke@example.org")
    provider.person["email"] = "mike@example.org"
    assert through(Client()).status_code == 403
    provider.person["email"] = "m\u0131ke@example.org"
    assert through(Client()).status_code == 403


def test_two_users_with_one_address_are_nobody(provider: FakeProvider, oidc: Any) -> None:
    member()
    member("administrator", "Operator@Example.org")
    assert through(Client()).status_code == 403


def test_link_by_address_can_be_turned_off(provider: FakeProvider, oidc: Any) -> None:
    member()
    configured(oidc, link_by_address=False)
    assert through(Client()).status_code == 403


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"aud": "another client"}, "InvalidAudienceError"),
        ({"aud": [CLIENT, "another client"]}, "azp"),
        ({"aud": None}, "MissingRequiredClaimError"),
        ({"iss": "http://127.0.0.1/evil"}, "InvalidIssuerError"),
        ({"nonce": "of another sign-in"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"exp": 1}, "ExpiredSignatureError"),
        ({"exp": None}, "MissingRequiredClaimError"),
        ({"iat": 9_999_999_999}, "ImmatureSignatureError"),
        ({"sub": None}, "MissingRequiredClaimError"),
        ({"sub": ""}, "subject"),
        ({"sub": "x" * 256}, "subject"),
    ],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(
    provider: FakeProvider, oidc: Any, changed: dict[str, Any], what: str
) -> None:
    member()
    provider.changed = changed
    client = Client()
    answer = through(client)
    assert answer.status_code == 403
    assert "is not valid" in markup_of(answer)
    assert what in words()
    assert not is_in(client)


def test_a_token_with_another_signature_is_refused(provider: FakeProvider, oidc: Any) -> None:
    member()
    public = provider.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = provider.token
    forged = jwt.utils.base64url_encode(json.dumps({"alg": "none"}).encode()).decode()
    own_key, provider.key = provider.key, provider.other_key()
    assert through(Client()).status_code == 403
    assert "InvalidSignatureError" in words()
    provider.header["kid"] = "two"
    assert through(Client()).status_code == 403
    assert "does not have" in words()
    provider.key, provider.header = own_key, {"alg": "RS256", "kid": "one"}
    provider.token = lambda nonce: f"{forged}.{good(nonce).split('.')[1]}."  # type: ignore[method-assign]
    assert through(Client()).status_code == 403
    assert "algorithm is 'none'" in words()
    provider.token = lambda nonce: _signed_with_public_key(good(nonce), public)  # type: ignore[method-assign]
    assert through(Client()).status_code == 403
    assert "algorithm is 'HS256'" in words()
    provider.token = good  # type: ignore[method-assign]
    assert through(Client()).status_code == 302


def _signed_with_public_key(token: str, public: bytes) -> str:
    header = jwt.utils.base64url_encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).decode()
    body = f"{header}.{token.split('.')[1]}"
    return f"{body}.{jwt.utils.base64url_encode(hmac.new(public, body.encode(), hashlib.sha256).digest()).decode()}"


def test_an_answer_that_this_session_did_not_ask_for_is_refused(provider: FakeProvider, oidc: Any) -> None:
    member()
    attacker, victim = Client(), Client()
    back = go(attacker)
    answer = victim.get(back)
    assert answer["Location"] == "/accounts/login/"
    assert "not begun here" in markup_of(victim.get("/accounts/login/"))
    assert not is_in(victim)
    go(victim)
    assert victim.get(back)["Location"] == "/accounts/login/"
    assert not is_in(victim)
    assert not victim.get(f"{BACK}?code=x").cookies.get(settings.SESSION_COOKIE_NAME) or not is_in(victim)


def test_an_answer_counts_once_and_not_for_long(
    provider: FakeProvider, oidc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    member()
    client = Client()
    back = go(client)
    code = parse_qs(urlsplit(back).query)["code"][0]
    provider.codes[code] = provider.codes[code]
    assert client.get(back).status_code == 302
    client.post("/accounts/logout/")
    assert client.get(back)["Location"] == "/accounts/login/"
    assert not is_in(client)
    late = Client()
    back = go(late)
    now = time.time()
    monkeypatch.setattr("appliance.accounts.oidc.views.time.time", lambda: now + 601)
    assert late.get(back)["Location"] == "/accounts/login/"
    assert not is_in(late)


def test_the_answer_of_another_provider_is_refused(provider: FakeProvider, oidc: Any) -> None:
    member()
    client = Client()
    assert client.get(f"{go(client)}&iss=https://evil.example").status_code == 403
    assert not is_in(client)


def test_a_code_without_our_verifier_or_with_a_wrong_secret_gets_nothing(
    provider: FakeProvider, oidc: Any, tmp_path: Path
) -> None:
    member()
    client = Client()
    back = go(client)
    (asked,) = provider.codes.values()
    asked["code_challenge"] = "that of another browser"
    assert client.get(back).status_code == 503
    assert "invalid_grant" in words()
    (tmp_path / "secret").write_text("wrong")
    assert through(client).status_code == 503
    assert "invalid_client" in words()
    (tmp_path / "secret").unlink()
    assert through(client).status_code == 503
    assert "client_secret_file" in words()


@pytest.mark.parametrize("methods", [["client_secret_post"], ["client_secret_basic", "client_secret_post"]])
def test_the_secret_is_sent_as_the_provider_wants_it(provider: FakeProvider, oidc: Any, methods: list[str]) -> None:
    member()
    provider.configuration["token_endpoint_auth_methods_supported"] = methods
    assert through(Client()).status_code == 302


def test_a_provider_that_is_down_has_a_page_and_passwords_still_work(provider: FakeProvider, oidc: Any) -> None:
    member()
    provider.failing["/token"] = 500
    client = Client()
    answer = through(client)
    assert answer.status_code == 503
    assert "Example Login is not available" in markup_of(answer)
    assert "sign in with a password" in markup_of(answer)
    provider.stop()
    views._provider.cache_clear()
    answer = client.get(BEGIN)
    assert answer.status_code == 503
    assert "refused" in words()
    assert sign_in(client, "operator") == 302


@pytest.mark.parametrize(
    ("configuration", "what"),
    [
        ({"issuer": "http://127.0.0.1/other"}, "it calls itself"),
        ({"authorization_endpoint": "http://login.example.org/"}, "no usable authorization_endpoint"),
        ({"authorization_endpoint": None}, "no usable authorization_endpoint"),
    ],
)
def test_a_configuration_that_is_not_usable_is_told(
    provider: FakeProvider, oidc: Any, configuration: dict[str, Any], what: str
) -> None:
    provider.configuration = configuration
    assert Client().get(BEGIN).status_code == 503
    assert what in words()


def test_the_secret_goes_to_no_address_without_tls(provider: FakeProvider, oidc: Any) -> None:
    member()
    provider.configuration = {"token_endpoint": "http://192.0.2.1/token"}
    assert through(Client()).status_code == 503
    assert "no usable token_endpoint" in words()


def test_a_cancelled_sign_in_says_so(provider: FakeProvider, oidc: Any) -> None:
    provider.error = "access_denied"
    client = Client()
    assert through(client)["Location"] == "/accounts/login/"
    assert "did not sign you in (access_denied)" in markup_of(client.get("/accounts/login/"))


def test_a_disabled_user_is_refused(provider: FakeProvider, oidc: Any) -> None:
    it = member()
    through(Client())
    it.is_active = False
    it.save()
    client = Client()
    answer = through(client)
    assert answer.status_code == 403
    assert "disabled" in markup_of(answer)
    assert not is_in(client)


def test_an_invitation_is_accepted_by_single_sign_on_also_with_another_address(
    provider: FakeProvider, oidc: Any
) -> None:
    invited("ina", "ina@example.org")
    provider.person |= {"email": "ina@private.example", "email_verified": False}
    client = Client()
    assert client.post("/accounts/invitation/", {"code": "ina"}).status_code == 302
    assert "Example Login" in markup_of(client.get("/accounts/invitation/accept/"))
    assert through(client).status_code == 302
    assert is_in(client)
    it = User.objects.get(username="ina")
    assert (role_name(it), it.has_usable_password()) == ("operator", False)
    assert client.get("/accounts/password/")["Location"] == "/accounts/password/none/"
    assert "You have no password" in markup_of(client.get("/accounts/password/none/"))
    again = Client()
    assert through(again).status_code == 302


def test_an_open_invitation_is_found_by_a_verified_address(provider: FakeProvider, oidc: Any) -> None:
    invited("ina", "ina@example.org")
    provider.person["email"] = "Ina@example.org"
    client = Client()
    assert through(client).status_code == 302
    assert User.objects.get(username="ina")
    assert Invitation.objects.get().accepted_at is not None


def invited(name: str, address: str) -> None:
    """An open invitation, whose code is the name."""
    end = timezone.now() + timedelta(hours=1)
    Invitation.objects.create(
        digest=digest_of(name), address=address, username=name, role="operator", invited_by="x", expires_at=end
    )


GROUPS = {"viewer_groups": ("staff",), "operator_groups": ("ops",), "administrator_groups": ("root",)}


def test_groups_give_the_role_at_each_sign_in_and_take_it_away(provider: FakeProvider, oidc: Any) -> None:
    member("viewer", "operator@example.org")
    user("administrator")
    configured(oidc, **GROUPS)
    first = Client()
    provider.person["groups"] = ["ops", "staff"]
    assert through(first).status_code == 302
    it = User.objects.get(username="viewer")
    assert role_name(it) == "operator"
    entry = Entry.objects.get(action="user.change")
    assert (entry.before or {})["role"] == "viewer"
    assert (entry.after or {})["role"] == "operator"
    provider.person["groups"] = "root"
    second = Client()
    assert through(second).status_code == 302
    assert role_name(it) == "administrator"
    assert not is_in(first), "another role, another session"
    provider.person["groups"] = []
    third = Client()
    answer = through(third)
    assert answer.status_code == 403
    assert "None of your groups" in markup_of(answer)
    assert role_name(it) == ""
    assert not is_in(second)
    assert not is_in(third)
    provider.person["groups"] = ["staff"]
    assert through(Client()).status_code == 302
    assert role_name(it) == "viewer"


def test_groups_do_not_take_the_last_administrator_away(provider: FakeProvider, oidc: Any) -> None:
    it = member("administrator")
    configured(oidc, **GROUPS)
    provider.person["groups"] = []
    assert through(Client()).status_code == 302
    assert role_name(it) == "administrator"
    assert "kept: the last active administrator" in Entry.objects.get(action="user.change").words


def test_users_are_made_only_if_that_is_set_and_a_group_gives_a_role(provider: FakeProvider, oidc: Any) -> None:
    user("viewer", "ina")
    configured(oidc, **GROUPS)
    provider.person |= {"email": "new@example.org", "preferred_username": "Ina", "groups": ["ops"]}
    assert through(Client()).status_code == 403
    configured(oidc, make_users=True)
    provider.person["groups"] = ["others"]
    assert through(Client()).status_code == 403
    provider.person["groups"] = ["ops"]
    client = Client()
    assert through(client).status_code == 302
    made = User.objects.get(email="new@example.org")
    assert (made.username, role_name(made), made.has_usable_password()) == ("Ina-2", "operator", False)
    provider.person |= {"sub": "8", "email_verified": False, "preferred_username": "<script>"}
    assert through(Client()).status_code == 302
    assert Identity.objects.get(subject="8").user.email == "", "not verified"
    assert Identity.objects.get(subject="8").user.username == "user"


def test_the_portals_own_second_factor_is_asked_for_after_single_sign_on(provider: FakeProvider, oidc: Any) -> None:
    it = member()
    TOTP.activate(it, "JBSWY3DPEHPK3PXP")
    provider.person["amr"] = ["pwd", "mfa"]
    client = Client()
    assert through(client)["Location"] == "/accounts/two-factor/code/"
    assert not is_in(client)
    configured(oidc, second_factor_amr=("mfa",))
    client = Client()
    assert through(client)["Location"] == "/"
    assert is_in(client)


def test_a_demanded_second_factor_is_not_got_around(provider: FakeProvider, oidc: Any) -> None:
    it = member()
    with override_settings(PORTAL=dataclasses.replace(settings.PORTAL, second_factor_for=("operator",))):
        provider.person["amr"] = ["mfa"]
        client = Client()
        through(client)
        assert client.get(INSIDE)["Location"] == "/accounts/two-factor/", "the provider's word does not count"
        configured(oidc, second_factor_amr=("mfa",))
        assert client.get(INSIDE)["Location"] == "/accounts/two-factor/", "nor afterwards"
        client = Client()
        through(client)
        assert client.get(INSIDE).status_code == 200
        assert first_step_of(it) is None, "tokens"
        by_password = Client()
        sign_in(by_password, "operator")
        assert by_password.get(INSIDE)["Location"] == "/accounts/two-factor/", "by password it was one factor only"
        provider.person["amr"] = ["pwd"]
        weaker = Client()
        through(weaker)
        assert weaker.get(INSIDE)["Location"] == "/accounts/two-factor/"
        assert first_step_of(it) is FirstStep.SECOND_FACTOR, "tokens, since the last sign-in had none"


def test_a_given_password_is_gone_after_single_sign_on(provider: FakeProvider, oidc: Any) -> None:
    it = member()
    give_password(it)
    client = Client()
    through(client)
    assert client.get(INSIDE).status_code == 200
    assert sign_in(Client(), "operator") == 200, "the person who gave it cannot use it"


def test_passwords_can_be_turned_off(provider: FakeProvider, oidc: Any) -> None:
    member()
    configured(oidc, passwords=False)
    text = markup_of(Client().get("/accounts/login/"))
    assert 'name="password"' not in text
    client = Client()
    answer = client.post("/accounts/login/", {"login": "operator", "password": PASSWORD})
    assert "Passwords are turned off" in markup_of(answer)
    assert not is_in(client)
    invited("ina", "ina@example.org")
    client.post("/accounts/invitation/", {"code": "ina"})
    client.post("/accounts/invitation/accept/", {"new_password1": PASSWORD, "new_password2": PASSWORD})
    assert not User.objects.filter(username="ina").exists()


def test_a_session_by_single_sign_on_ends_also_while_it_is_used(
    provider: FakeProvider, oidc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = member()
    configured(oidc, session_s=600)
    client = Client()
    through(client)
    assert is_in(client)
    now = time.time()
    monkeypatch.setattr("appliance.accounts.sessions.time.time", lambda: now + 601)
    assert sessions_of(it) == []
    assert client.get(INSIDE)["Location"].startswith("/accounts/login/")
    monkeypatch.undo()
    assert not is_in(client), "signed out for good"
    assert not Session.objects.filter(user=it).exists()


def test_beginning_many_times_is_slowed_down(provider: FakeProvider, oidc: Any) -> None:
    client = Client()
    assert {client.get(BEGIN).status_code for _ in range(62)} == {302, 429}
    assert len(client.session[views.PENDING]) == views.PENDING_MAX


def test_nobody_is_sent_elsewhere_afterwards(provider: FakeProvider, oidc: Any) -> None:
    member()
    assert through(Client(), f"{BEGIN}?next=https://evil.example/")["Location"] == "/"
    assert through(Client(), f"{BEGIN}?next=//evil.example/")["Location"] == "/"


def test_without_a_provider_there_is_nothing() -> None:
    assert Client().get(BEGIN)["Location"] == "/accounts/login/"
    assert Client().get(f"{BACK}?state=x&code=y")["Location"] == "/accounts/login/"
    assert "accounts/oidc" not in markup_of(Client().get("/accounts/login/"))
    assert Group.objects.exists()
