"""The audit: pages that stay where they are, filters, one entry, CSV, and its end."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from appliance.audit import filters
from appliance.audit.difference import difference
from appliance.audit.models import UNDER_WAY, Entry, Outcome
from appliance.audit.record import audited, record
from appliance.live.models import Sample
from mailcore.control.client import Refused
from tests.appliance.accounts.sample_users import client_of

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\u202egnp.exe\x1b[2J=cmd"


def made(count: int, **fields: str) -> None:
    named = {"who": "ina", "action": "queue.hold", **fields}
    Entry.objects.bulk_create(Entry(at=timezone.now(), **{"subject": f"Q{each}", **named}) for each in range(count))


def subjects(client: Client, url: str) -> list[str]:
    text = client.get(url).content.decode()
    return re.findall(r'class="break subject"><bdi>([^<]*)</bdi>', text)


def older(client: Client, url: str) -> str:
    found = re.search(r'rel="next" href="([^"]+)"', client.get(url).content.decode())
    assert found is not None
    return "/audit/" + found.group(1).replace("&amp;", "&")


@pytest.fixture
def client() -> Client:
    made_client = client_of("operator")
    Entry.objects.all()._raw_delete("default")  # the signing in
    return made_client


def test_pages_are_newest_first_and_stay_where_they_are(client: Client) -> None:
    made(250)
    assert subjects(client, "/audit/") == [f"Q{each}" for each in range(249, 149, -1)]
    second = older(client, "/audit/")
    before = subjects(client, second)
    made(30)
    assert subjects(client, second) == before == [f"Q{each}" for each in range(149, 49, -1)]
    assert subjects(client, older(client, second)) == [f"Q{each}" for each in range(49, -1, -1)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("who=tom", ["T0"]),
        ("action=tuning.set", ["S0"]),
        ("action=tuning.*", ["S0"]),
        ("subject=Q1", ["Q1"]),
        ("subject=Q*", ["Q1", "Q0"]),
        ("outcome=refused", ["R0"]),
        ("text=THROTTLES", ["S0"]),
        ("who=tom&outcome=refused", []),
        ("since=2000-01-01T00:00&until=2000-01-02T00:00", []),
        ("since=2000-01-01T00:00&who=tom", ["T0"]),
        ("until=2000-01-01T00:00", []),
    ],
)
def test_entries_are_found_by_what_is_in_them(client: Client, query: str, expected: list[str]) -> None:
    made(2)
    made(1, who="tom", subject="T0")
    made(1, action="tuning.set", subject="S0", why="the provider throttles us")
    made(1, subject="R0", outcome="refused")
    assert subjects(client, f"/audit/?{query}") == expected


def test_a_filter_that_makes_no_sense_says_so(client: Client) -> None:
    assert client.get("/audit/?since=yesterday").status_code == 422
    assert client.get("/audit/?outcome=perhaps").status_code == 422
    for edge in (
        "since=0001-01-01T00:00",
        "until=0001-01-01T00:00",
        "since=9999-12-31T23:59",
        "until=9999-12-31T23:59",
    ):
        assert client.get(f"/audit/?{edge}").status_code == 422, edge
    assert client.get("/audit/?before=9999999999999999999999").status_code == 200
    assert client.get("/audit/csv/?since=yesterday").status_code == 400


def test_looking_for_text_examines_so_many_and_says_where_to_read_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "EXAMINED", 40)
    made(1, subject="needle", why="the one")
    made(100)
    url = "/audit/?text=the+one"
    steps = 0
    while not subjects(client, url):
        url = older(client, url)
        steps += 1
        assert steps < 5
    assert steps == 2


@pytest.mark.parametrize("query", ["", "who=ina", "action=queue.hold", "subject=Q7", "outcome=done", "before=500"])
def test_a_page_needs_no_sort_and_no_scan(client: Client, query: str) -> None:
    made(1000)
    form = filters.FilterForm.of(client.get(f"/audit/?{query}").wsgi_request.GET)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        filters.page(form, 500 if "before" in query else None)
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + queries[-1]["sql"])
        plan = " ".join(str(row[-1]) for row in cursor.fetchall())
    assert "TEMP B-TREE" not in plan, plan
    assert "INDEX audit_" in plan or not query or "before" in query, plan


def test_an_entry_shows_what_was_changed(client: Client) -> None:
    entry = record(None, "tuning.set", "smtp", who="ina", before={"limit": 20, "feedback": "1/8", "old": 1},
                   after={"limit": 5, "feedback": "1/8", "new": {"a": True}}, why="throttled")  # fmt: skip
    text = client.get(f"/audit/{entry.pk}/").content.decode()
    assert "<del><bdi>20</bdi></del>" in text
    assert "<ins><bdi>5</bdi></ins>" in text
    assert "<ins><bdi>true</bdi></ins>" in text
    assert "<del><bdi>1/8</bdi></del>" not in text
    lines = difference(entry.before, entry.after)
    assert [(line.name, line.changed) for line in lines] == [
        ("limit", True), ("old", True), ("new.a", True), ("feedback", False),
    ]  # fmt: skip
    assert difference(None, None) == []
    assert [line.after for line in difference(None, [1, 2])] == ["[1, 2]"]


def test_strangers_text_is_harmless_on_every_page_and_in_csv(client: Client) -> None:
    entry = record(
        None, "message.read_body", HOSTILE, who=HOSTILE, before={HOSTILE: HOSTILE}, why=HOSTILE, words=HOSTILE
    )
    for url in ("/audit/", f"/audit/{entry.pk}/", "/audit/csv/"):
        text = client.get(url).content.decode()
        assert "\u202e" not in text, url
        assert "\x1b" not in text, url
        assert "<script>alert" not in text or url.endswith("csv/")


def test_the_csv_is_what_was_filtered_and_no_formula(client: Client) -> None:
    made(1, subject="=HYPERLINK(1)", why="+1")
    made(1, who="tom")
    answer = client.get("/audit/csv/?who=ina")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.reader(io.StringIO(answer.content.decode())))
    assert rows[0][:4] == ["id", "at", "who", "address"]
    assert len(rows) == 2
    assert rows[1][5] == "'=HYPERLINK(1)"
    assert rows[1][8] == "'+1"


def test_the_csv_says_when_it_was_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.audit.views.ROWS_MAX", 1_000)
    made(1_500)
    rows = client.get("/audit/csv/").content.decode().splitlines()
    assert len(rows) == 1_002
    assert "note: truncated after 1000 entries" in rows[-1]


def test_nothing_changes_or_deletes_an_entry() -> None:
    entry = record(None, "tuning.set", "smtp", who="ina")
    for deed in (entry.save, entry.delete, Entry.objects.all().delete, lambda: Entry.objects.update(who="tom")):
        with pytest.raises(TypeError):
            deed()
    assert Entry.objects.get().outcome == Outcome.DONE


def test_a_deed_is_in_the_audit_before_it_is_done() -> None:
    """So a portal that is killed in the middle of it leaves this entry."""
    request = RequestFactory().get("/")
    with audited(request, "queue.hold", "1K0RDGV4BE900", why="spam") as entry:
        found = Entry.objects.get()
        assert (found.outcome, found.words, found.why) == (Outcome.UNKNOWN, UNDER_WAY, "spam")
        entry.words, entry.after = "1 message held", {"held": 1}
    found = Entry.objects.get()
    assert (found.outcome, found.words, found.after) == (Outcome.DONE, "1 message held", {"held": 1})
    with pytest.raises(TypeError):
        entry.end()
    with pytest.raises(Refused), audited(request, "queue.hold"):
        raise Refused("no such message")
    assert (Entry.objects.all()[0].outcome, Entry.objects.count()) == (Outcome.REFUSED, 2)


def test_tidy_ends_what_is_old_and_nothing_else() -> None:
    old, young = record(None, "a", who="ina"), record(None, "b", who="ina")
    Entry._base_manager.filter(pk=old.pk).update(at=timezone.now() - timedelta(days=3651))
    named = dict.fromkeys(("accepted", "delivered", "deferred", "bounced", "expired", "deleted", "undeleted"), 0)
    minute = int(timezone.now().timestamp() // 60)
    for each in (minute - 36 * 1440, minute):
        Sample.objects.create(minute=each, at=each * 60, started_at=0, messages=0, recipients=0, **named)
    call_command("tidy", stdout=io.StringIO())
    assert list(Entry.objects.values_list("pk", flat=True)) == [young.pk]
    assert list(Sample.objects.values_list("minute", flat=True)) == [minute]


def test_viewers_do_not_see_the_audit() -> None:
    for url in ("/audit/", "/audit/1/", "/audit/csv/"):
        assert client_of("viewer").get(url).status_code == 403
