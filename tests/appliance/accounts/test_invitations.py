"""Invitations: sent by the core, accepted once, gone when withdrawn, sent again or expired; the code is in the mail alone."""

from __future__ import annotations

import dataclasses
import email
import email.policy
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client, override_settings
from django.utils import timezone

from appliance.accounts.invitations import find
from appliance.accounts.models import Invitation
from appliance.accounts.roles import Role, role_of
from appliance.audit.models import Entry
from mailcore.faults import Code
from tests.appliance.accounts.sample_users import client_of, sign_in, user
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

PAGE, ENTER, ACCEPT = "/accounts/invitations/", "/accounts/invitation/", "/accounts/invitation/accept/"
ANSWERS: dict[str, Any] = {"inject_begin": {}, "inject_data": {}, "inject_end": {"queue_id": "0123456789ABC"}}
INA = {"address": "ina@example.org", "username": "ina", "role": "operator", "why": "starts on Monday"}
PASSWORD = "a password of my own"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


@pytest.fixture
def core() -> Iterator[FakeCore]:
    with FakeCore(ANSWERS) as running:
        yield running


def text_in(core: FakeCore) -> str:
    """The text of the last mail that was handed to the core."""
    mail = email.message_from_bytes(core.asked("inject_data")[-1]["data"], policy=email.policy.default)
    return str(mail.get_content())


def code_in(core: FakeCore) -> str:
    """The code in it."""
    text = text_in(core)
    link = re.search(r"http://\S+/accounts/invitation/#(\S+)", text)
    assert link is not None, text
    return link[1]


def invited(core: FakeCore, **changed: str) -> tuple[Client, str]:
    """A client of the administrator, and the code."""
    boss = client_of("administrator")
    assert boss.post(PAGE, INA | changed).status_code == 302
    return boss, code_in(core)


def entered(code: str) -> tuple[Client, Any]:
    client = Client()
    return client, client.post(ENTER, {"code": code})


def accepted(client: Client, password: str = PASSWORD) -> Any:
    return client.post(ACCEPT, {"new_password1": password, "new_password2": password})


def test_an_invited_person_sets_a_password_and_is_signed_in(core: FakeCore) -> None:
    boss, code = invited(core)
    (begin,) = core.asked("inject_begin")
    assert begin["recipients"] == ["ina@example.org"]
    text = markup_of(boss.get(PAGE))
    assert "the mail to ina@example.org is in the queue" in text
    assert 'href="/queue/0123456789ABC/"' in text
    client, answer = entered(code)
    assert answer["Location"] == ACCEPT
    page = markup_of(client.get(ACCEPT))
    assert "ina" in page
    assert "operator" in page
    assert accepted(client, "short").status_code == 200, "the rules of passwords hold here, too"
    assert not User.objects.filter(username="ina").exists()
    assert accepted(client)["Location"] == "/"
    assert client.get("/audit/").status_code == 200
    it = User.objects.get(username="ina")
    assert (role_of(it), it.email) == (Role.OPERATOR, "ina@example.org")
    assert sign_in(Client(), "ina", PASSWORD) == 302
    assert [entry.who for entry in Entry.objects.filter(action="user.accept")] == ["ina"]
    invite = Entry.objects.get(action="user.invite")
    assert (invite.who, invite.subject, invite.why) == ("administrator", "ina", "starts on Monday")
    assert "accepted" in markup_of(boss.get(PAGE))


def test_the_code_is_in_the_mail_alone(core: FakeCore) -> None:
    boss, code = invited(core)
    client, answer = entered(code)
    everything = str(list(Invitation.objects.values())) + str(list(Entry.objects.values())) + markup_of(boss.get(PAGE))
    assert code not in everything
    assert code not in answer["Location"]
    assert code not in markup_of(client.get(ACCEPT))
    assert f"{ENTER}#{code}" in text_in(core), "behind #, which no server is sent"


def test_looking_at_a_link_uses_up_nothing(core: FakeCore) -> None:
    _, code = invited(core)
    scanner, _ = entered(code)
    for _ in range(3):
        assert scanner.get(ENTER).status_code == 200
        assert scanner.get(ACCEPT).status_code == 200
    client, _ = entered(code)
    assert accepted(client).status_code == 302
    assert User.objects.filter(username="ina").exists()


def test_it_works_once(core: FakeCore) -> None:
    _, code = invited(core)
    first, _ = entered(code)
    second, _ = entered(code)
    assert accepted(first).status_code == 302
    assert accepted(second, "of the second one")["Location"] == ENTER
    assert second.get("/audit/").status_code == 302
    assert sign_in(Client(), "ina", "of the second one") != 302
    third, answer = entered(code)
    assert "does not work" in markup_of(answer)
    assert third.get(ACCEPT).status_code == 302


def test_a_withdrawn_one_does_not_work_not_even_in_the_middle(core: FakeCore) -> None:
    boss, code = invited(core)
    client, _ = entered(code)
    pk = Invitation.objects.get().pk
    assert boss.post(f"{PAGE}{pk}/withdraw/").status_code == 302
    assert accepted(client)["Location"] == ENTER
    assert "does not work" in markup_of(client.get(ENTER))
    assert "does not work" in markup_of(entered(code)[1])
    assert not User.objects.filter(username="ina").exists()
    assert Entry.objects.filter(action="user.invite", words="withdrawn").exists()
    boss.post(f"{PAGE}{pk}/again/")
    assert len(core.asked("inject_begin")) == 1, "it stays withdrawn"


def test_an_expired_one_does_not_work_until_it_is_sent_again(core: FakeCore) -> None:
    boss, code = invited(core)
    client, _ = entered(code)
    Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert accepted(client)["Location"] == ENTER
    assert find(code=code) is None
    assert boss.post(f"{PAGE}{Invitation.objects.get().pk}/again/").status_code == 302
    again = code_in(core)
    assert again != code
    assert find(code=code) is None, "the code of the first mail stays dead"
    client, _ = entered(again)
    assert accepted(client).status_code == 302
    assert sign_in(Client(), "ina", PASSWORD) == 302


def test_a_name_or_an_address_that_is_taken_meanwhile_is_not_taken_over(core: FakeCore) -> None:
    _, code = invited(core)
    client, _ = entered(code)
    user("viewer", "ina")
    assert accepted(client)["Location"] == ENTER
    assert sign_in(Client(), "ina", PASSWORD) != 302
    assert Invitation.objects.get().accepted_at is None, "all of it or nothing"


def test_what_cannot_be_invited_is_said_at_the_field(core: FakeCore) -> None:
    it = user("viewer", "kim")
    it.email = "Kim@Example.org"
    it.save()
    boss, _ = invited(core)
    for changed in (
        {"username": "KIM"}, {"username": "ina"}, {"username": "a b"}, {"address": "kim@example.org"}, {"address": "x"},
        {"address": "INA@example.org"}, {"role": ""}, {"role": "owner"}, {"why": ""},
    ):  # fmt: skip
        fields = {"address": "new@example.org", "username": "new", "role": "viewer", "why": "a test", **changed}
        assert boss.post(PAGE, fields).status_code == 422, changed
    assert Invitation.objects.count() == 1
    with override_settings(PORTAL=_portal(invitations_max=1)):
        fields = {"address": "new@example.org", "username": "new", "role": "viewer", "why": "a test"}
        assert "Too many invitations" in markup_of(boss.post(PAGE, fields))


def _portal(**values: Any) -> object:
    return dataclasses.replace(settings.PORTAL, **values)


def test_a_core_that_does_not_take_the_mail_is_told_and_it_is_sent_again_later() -> None:
    boss = client_of("administrator")
    with FakeCore({"inject_begin": Refusal("the disk is full", Code.BUSY)}):
        assert boss.post(PAGE, INA).status_code == 302
    text = markup_of(boss.get(PAGE))
    assert "not sent" in text
    assert "the disk is full" in text
    assert "not sent" in Entry.objects.get(action="user.invite").words
    boss.post(f"{PAGE}{Invitation.objects.get().pk}/again/")  # no core at all
    assert "not sent" in markup_of(boss.get(PAGE))
    with FakeCore(ANSWERS) as core:
        boss.post(f"{PAGE}{Invitation.objects.get().pk}/again/")
        client, _ = entered(code_in(core))
    assert accepted(client).status_code == 302


def test_codes_cannot_be_tried_for_long() -> None:
    client = Client()
    statuses = [client.post(ENTER, {"code": f"code{each}"}).status_code for each in range(22)]
    assert statuses == [200] * 20 + [429] * 2
    assert Client(REMOTE_ADDR="192.0.2.9").post(ENTER, {"code": "x" * 5_000}).status_code == 200


def test_nobody_who_is_signed_in_accepts_one(core: FakeCore) -> None:
    boss, code = invited(core)
    assert boss.post(ENTER, {"code": code}).status_code == 302
    assert accepted(boss).status_code == 302
    assert not User.objects.filter(username="ina").exists()
    assert "Sign out first" in markup_of(boss.get(ENTER))


def test_a_role_that_demands_a_second_factor_demands_it_of_an_invited_user(core: FakeCore) -> None:
    _, code = invited(core)
    client, _ = entered(code)
    with override_settings(PORTAL=_portal(second_factor_for=("operator",))):
        accepted(client)
        assert client.get("/audit/")["Location"] == "/accounts/two-factor/"


def test_an_invited_person_may_choose_a_passkey_and_then_must_make_one(core: FakeCore) -> None:
    _, code = invited(core)
    client, _ = entered(code)
    assert client.post(ACCEPT, {"passkey": "yes"}).status_code == 200, "there are none at an address without a name"
    assert not User.objects.filter(username="ina").exists()
    client = Client(headers={"host": "localhost"})
    client.post(ENTER, {"code": code})
    assert client.post(ACCEPT, {"passkey": "yes"}).status_code == 302
    assert client.get("/audit/")["Location"] == "/accounts/passkeys/add/"
    assert not User.objects.get(username="ina").has_usable_password()
