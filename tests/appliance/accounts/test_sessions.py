"""Sessions: what a user sees of the own ones, who ends which, and that one that was ended stays ended."""

from __future__ import annotations

import re
import uuid

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.core.cache import cache
from django.test import Client

from appliance.accounts.browsers import browser_in_words
from appliance.accounts.session_store import Session, SessionStore
from appliance.accounts.sessions import end_sessions, sessions_of
from appliance.audit.models import Entry
from tests.appliance.accounts.sample_users import PASSWORD, client_of, sign_in, user
from tests.appliance.markup import markup_of

pytestmark = pytest.mark.django_db

INSIDE = "/audit/"
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:128.0) Gecko/20100101 Firefox/128.0"
CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


def signed_in(name: str, agent: str = FIREFOX, address: str = "192.0.2.7") -> Client:
    client = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    assert sign_in(client, name) == 302
    assert client.get(INSIDE).status_code in (200, 403)
    return client


def number_of(client: Client) -> str:
    return str(Session.objects.get(pk=client.cookies[settings.SESSION_COOKIE_NAME].value).number)


def test_a_user_sees_each_of_the_own_sessions_in_words() -> None:
    user("operator")
    signed_in("operator", CHROME, "2001:db8::9")
    here = signed_in("operator")
    user("viewer")
    signed_in("viewer", address="198.51.100.3")
    text = markup_of(here.get("/accounts/sessions/"))
    assert "Firefox 128 on Windows" in text
    assert "Chrome 131 on Linux" in text
    assert "192.0.2.7" in text
    assert "2001:db8::9" in text
    assert text.count("this one") == 1
    assert text.index("this one") < text.index("Chrome 131"), "the own one comes first"
    assert "password" in text
    assert "198.51.100.3" not in text, "of another user"
    for row in Session.objects.all():
        assert row.session_key not in text, "who reads the page over a shoulder could sign in with it"


def test_the_list_says_when_and_from_where_a_session_was_used_last() -> None:
    user("operator")
    client = signed_in("operator", address="192.0.2.7")
    session = client.session
    session["waypost_seen"] = 1
    session.save()
    client.get(INSIDE, REMOTE_ADDR="203.0.113.5")
    (found,) = sessions_of(User.objects.get(username="operator"))
    assert (found.address, found.last_address) == ("192.0.2.7", "203.0.113.5")
    assert found.seen_at is not None
    assert found.seen_at.year > 2000


def test_a_session_that_is_ended_is_ended_with_the_next_request() -> None:
    user("operator")
    there, here = signed_in("operator", CHROME), signed_in("operator")
    answer = here.post(f"/accounts/sessions/{number_of(there)}/end/")
    assert answer.status_code == 302
    assert there.get(INSIDE).status_code == 302
    assert here.get(INSIDE).status_code == 200
    entry = Entry.objects.get(action="session.end")
    assert (entry.who, entry.subject) == ("operator", "operator")
    assert "Chrome 131 on Linux, from 192.0.2.7" in entry.words


def test_all_others_are_ended_at_once() -> None:
    user("operator")
    others = [signed_in("operator", CHROME) for _ in range(3)]
    here = signed_in("operator")
    user("viewer")
    stranger = signed_in("viewer")
    assert here.post("/accounts/sessions/end-others/").status_code == 302
    assert {each.get(INSIDE).status_code for each in others} == {302}
    assert here.get(INSIDE).status_code == 200
    assert stranger.get("/accounts/sessions/").status_code == 200
    assert Entry.objects.get(action="session.end").words == "all others: 3 sessions"


def test_the_own_session_is_ended_by_signing_out() -> None:
    user("operator")
    here = signed_in("operator")
    answer = here.post(f"/accounts/sessions/{number_of(here)}/end/")
    assert answer["Location"] == "/accounts/login/"
    assert here.get(INSIDE).status_code == 302
    assert Entry.objects.filter(action="sign_out").exists()


def test_nobody_ends_a_session_of_somebody_else() -> None:
    user("administrator")
    victim = signed_in("administrator")
    for role in ("viewer", "operator", ""):
        assert client_of(role).post(f"/accounts/sessions/{number_of(victim)}/end/").status_code == 404
    assert client_of("operator").post(f"/accounts/sessions/{uuid.uuid4()}/end/").status_code == 404
    assert victim.get(INSIDE).status_code == 200
    assert not Entry.objects.filter(action="session.end").exists()


def test_a_request_under_way_does_not_bring_an_ended_session_back() -> None:
    it = user("operator")
    client = signed_in("operator")
    under_way = SessionStore(client.cookies[settings.SESSION_COOKIE_NAME].value)
    under_way["something"] = "written late"
    assert end_sessions({it.pk}) == 1
    with pytest.raises(UpdateError):
        under_way.save()
    assert client.get(INSIDE).status_code == 302
    assert not Session.objects.filter(user=it).exists()


def test_sessions_of_a_changed_password_leave_the_list() -> None:
    it = user("operator")
    signed_in("operator", CHROME)
    here = signed_in("operator")
    here.post("/accounts/reauthenticate/?next=/accounts/password/", {"password": PASSWORD})
    new = "an even longer password"
    assert here.post(
        "/accounts/password/", {"oldpassword": PASSWORD, "password1": new, "password2": new}
    ).status_code == 302  # fmt: skip
    assert Session.objects.filter(user=it).count() == 1
    text = markup_of(here.get("/accounts/sessions/"))
    assert "Chrome 131" not in text
    assert "Firefox 128 on Windows" in text, "the own one stays, with its beginning"


def test_a_session_that_no_longer_signs_in_is_not_listed() -> None:
    """Set by hand on the server: Django refuses the session by its hash, so it is none, though its row is there."""
    it = user("operator")
    signed_in("operator")
    it.set_password("set by hand on the server")
    it.save()
    assert sessions_of(it) == []


def test_an_administrator_sees_and_ends_sessions_of_any_user_with_a_reason() -> None:
    it = user("operator")
    one, two = signed_in("operator"), signed_in("operator", CHROME)
    boss = client_of("administrator")
    url = f"/admin/auth/user/{it.pk}/sessions/"
    text = markup_of(boss.get(url))
    assert "Firefox 128 on Windows" in text
    assert "Chrome 131 on Linux" in text
    chosen = {"session": number_of(two), "which": "selected"}
    assert boss.post(url, chosen).status_code == 422, "a reason is needed"
    assert boss.post(url, {"which": "selected", "why": "lost laptop"}).status_code == 422, "nothing is selected"
    foreign = {"session": number_of(boss), "which": "selected", "why": "not theirs"}
    assert boss.post(url, foreign).status_code == 422
    assert two.get(INSIDE).status_code == 200
    assert boss.post(url, chosen | {"why": "lost laptop"}).status_code == 302
    assert two.get(INSIDE).status_code == 302
    assert one.get(INSIDE).status_code == 200
    entry = Entry.objects.get(action="session.end")
    assert (entry.who, entry.subject, entry.why) == ("administrator", "operator", "lost laptop")
    assert "Chrome 131 on Linux" in entry.words
    assert boss.post(url, {"which": "all", "why": "left the house"}).status_code == 302
    assert one.get(INSIDE).status_code == 302
    assert "Not signed in" in markup_of(boss.get(url))
    own = User.objects.get(username="administrator").pk
    assert boss.get(f"/admin/auth/user/{own}/sessions/").status_code == 403


def test_a_deleted_user_takes_the_sessions_along() -> None:
    it = user("operator")
    client = signed_in("operator")
    it.delete()
    assert client.get(INSIDE).status_code == 302
    assert not Session.objects.filter(number__isnull=False).exists()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox 128 on Windows"),
        (CHROME, "Chrome 131 on Linux"),
        (CHROME.replace("Chrome/", "HeadlessChrome/"), "Chrome 131 on Linux"),
        (f"{CHROME} Edg/131.0.0.0", "Edge 131 on Linux"),
        (f"{CHROME} OPR/115.0.0.0", "Opera 115 on Linux"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
         "Mobile/15E148 Safari/604.1", "Safari 17 on iPhone"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.1 "
         "Safari/605.1.15", "Safari 18 on macOS"),
        ("Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/131.0.0.0 Mobile Safari/537.36",
         "Chrome 131 on Android"),
        ("curl/8.9.1", "curl/8.9.1"),
        ("", "unknown browser"),
        ("x" * 5_000, "x" * 60),
    ],
)  # fmt: skip
def test_browsers_in_words(agent: str, words: str) -> None:
    assert browser_in_words(agent) == words


def test_what_a_browser_says_of_itself_is_escaped() -> None:
    user("operator")
    client = signed_in("operator", "<script>alert(1)</script>\u202eevil")
    text = client.get("/accounts/sessions/").content.decode()
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert re.search(r"&lt;script&gt;", text)
