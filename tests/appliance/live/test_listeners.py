"""Who may still listen: one look for all streams, and nobody stays whom it does not name."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from appliance.accounts.session_store import Session
from appliance.live import listeners as room
from appliance.live.listeners import LOOK_S, Listeners, _who_may
from tests.appliance.accounts.sample_users import client_of, user


class Database:
    """Answers what the test says, and counts."""

    def __init__(self, may: set[str]) -> None:
        self.may = may
        self.asked: list[frozenset[str]] = []

    def look(self, sessions: frozenset[str]) -> frozenset[str]:
        self.asked.append(sessions)
        return sessions & self.may


async def test_one_look_serves_all_that_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database({"a", "b"})
    them = Listeners(database.look)
    with them.one("a"), them.one("b"), them.one("c"):
        told = await asyncio.gather(*(them.may(each, 0.0) for each in "abcabc"))
        assert told == [True, True, False] * 2
        assert database.asked == [frozenset("abc")]
        database.may.clear()
        assert await them.may("a", 0.0), "not looked at again so soon"
        monkeypatch.setattr(room, "LOOK_S", 0.0)
        assert not await them.may("a", 0.0)
    with them.one("b"):
        await them.may("b", 0.0)
    assert database.asked[-1] == frozenset("b"), "who is gone is not asked for"


async def test_who_was_let_in_after_the_last_look_listens_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(set())
    them = Listeners(database.look)
    with them.one("a"):
        await them.may("a", 0.0)
        with them.one("new"):
            let_in_at = asyncio.get_running_loop().time() + 1e-6
            assert await them.may("new", let_in_at)
            monkeypatch.setattr(room, "LOOK_S", 0.0)
            await asyncio.sleep(0.001)
            assert not await them.may("new", let_in_at)


def test_a_look_is_often_enough_for_five_seconds() -> None:
    """The hub tells something at least every four seconds (2 × PATIENCE_S), and a look is due at each."""
    assert LOOK_S <= 4


@pytest.fixture
def viewers(transactional_db: None) -> None:
    """A look gives its connection back, so what is looked at is committed; and the end of such a test empties all tables."""
    Group.objects.get_or_create(name="viewer")


def key_of(client: Client) -> str:
    return str(client.session.session_key)


@pytest.mark.usefixtures("viewers")
def test_each_session_is_judged_as_a_request_of_it_would_be() -> None:
    stays, expired, deactivated, nobody = (client_of("viewer", name) for name in ("stays", "late", "gone", "nobody"))
    nameless = client_of("", "nameless")
    keys = [key_of(each) for each in (stays, expired, deactivated, nobody, nameless)]
    Session.objects.filter(pk=keys[1]).update(expire_date=timezone.now() - timedelta(seconds=1))
    User.objects.filter(username="gone").update(is_active=False)
    user(name="nobody").delete()
    of_another_key = client_of("viewer", "stays")
    forged = of_another_key.session
    forged["_auth_user_hash"] = "of another password"
    forged.save()
    empty = Client().session
    empty["nothing"] = SESSION_KEY
    empty.save()
    asked = frozenset([*keys, key_of(of_another_key), str(empty.session_key), "", "made up"])
    assert _who_may(asked) == frozenset([keys[0]])


@pytest.mark.usefixtures("viewers")
def test_many_that_listen_cost_a_look_three_questions(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    keys = frozenset(key_of(client_of("viewer")) for _ in range(20))
    with django_assert_max_num_queries(3):
        assert _who_may(keys) == keys
