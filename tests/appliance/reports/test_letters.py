"""The report by mail: read by Python's own parser, whole without anything fetched, the page's own numbers, sent once."""

from __future__ import annotations

import csv
import dataclasses
import email
import email.policy
import json
import re
from datetime import date, timedelta
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from appliance.reports import exporter, report_store
from appliance.reports.letters import failure_letter, letter, send_due
from appliance.reports.models import Preferences, Run, State
from appliance.reports.preferences import in_force
from appliance.reports.report_store import Period
from appliance.reports.tables import Kind
from appliance.reports.writing import Writing
from mailcore.config.nodes import Nodes
from mailcore.faults import Code
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.fake_core import FakeCore, Refusal
from tests.appliance.reports.made import make_report, tables

pytestmark = pytest.mark.django_db
DAY = date(2026, 11, 18)


@pytest.fixture(autouse=True)
def recipients() -> None:
    Preferences.objects.create(zone="Europe/Vienna", recipients=["ops@example.org", "boss@example.org"], numbers="de")


def parsed(message: EmailMessage) -> EmailMessage:
    read = email.message_from_bytes(message.as_bytes(), policy=email.policy.default)
    assert isinstance(read, EmailMessage)
    assert not read.defects
    assert not any(part.defects for part in read.walk())
    return read


def made(directory: Path, **named: Any) -> EmailMessage:
    make_report(directory, Period.DAY, DAY, **named)
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    return parsed(letter(report, in_force()))


def bodies(message: EmailMessage) -> tuple[str, str]:
    """Plain and HTML."""
    found = []
    for kind in ("plain", "html"):
        part = message.get_body((kind,))
        assert isinstance(part, EmailMessage)
        found.append(str(part.get_content()).replace("<wbr>", ""))
    return found[0], found[1]


def test_it_is_one_mail_with_all_it_needs_inside(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY - timedelta(days=1))
    message = made(reports_directory)
    assert message["Subject"] == "Waypost: report of Wednesday 18 November 2026"
    assert message["To"] == "ops@example.org, boss@example.org"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"]
    _, html = bodies(message)
    cids = re.findall(r'src="cid:([^"]+)"', html)
    pictures = {
        part["Content-ID"].strip("<>"): part for part in message.walk() if part.get_content_type() == "image/png"
    }
    assert set(cids) == set(pictures)
    assert len(cids) == 2
    for picture in pictures.values():
        assert picture.get_content_disposition() == "inline"
        assert picture.get_payload(decode=True)[:8] == b"\x89PNG\r\n\x1a\n"  # type: ignore[index]
    assert not re.search(r'(src|href)="(?!cid:|http://127.0.0.1)|url\(', html), "nothing is fetched"
    assert "<script" not in html
    assert len(message.as_bytes()) < 400_000
    assert max(len(line) for line in message.as_bytes().splitlines()) <= 998
    assert message.as_bytes().isascii(), "a next hop without 8BITMIME takes it, too"


def test_of_a_day_that_is_not_over_it_says_so(reports_directory: Path) -> None:
    message = made(reports_directory, so_far=True, left_out=["gold/day=2026-11-17/totals cannot be read \x1b"])
    assert message["Subject"] == "Waypost: report of Wednesday 18 November 2026 so far"
    for text in (*bodies(message), client_of("viewer").get("/reports/day/2026-11-18/").content.decode()):
        assert "not compared with other days" in text
        assert "totals cannot be read \\x1b" in text


def test_it_says_what_the_page_says(reports_directory: Path) -> None:
    plain, html = bodies(made(reports_directory))
    page = client_of("viewer").get("/reports/day/2026-11-18/").content.decode()
    for text in (plain, html):
        for number in ("1.200", "1.100", "60", "0"):
            assert number in text
            assert number in page
        assert "It balances." in text
        assert "smtp:domain10.example" in text
        assert "90,0\u00a0%" in text
        assert "5 min 12 s" in text
        assert "Wednesday 18 November 2026" in text
        assert "all mail" in text
        assert "http://127.0.0.1:8025/reports/day/2026-11-18/" in text
    assert "smtp:domain10.example" in page


def test_its_plain_text_fits_a_terminal(reports_directory: Path) -> None:
    given = tables()
    given["destinations"][10]["destination"] = "smtp:a-name-that-is-longer-than-most-are.and.has.many.parts.example"
    plain, _ = bodies(made(reports_directory, given=given))
    wide = [line for line in plain.splitlines() if len(line) > 78]
    assert [line for line in wide if "over quota" not in line and "=cmd" not in line] == []
    assert "smtp:a-name-that-is-longer-than-most-are.and.has.many.parts.example\n" in plain.replace("\r", ""), "not cut"


def test_one_that_does_not_balance_says_so_first(reports_directory: Path) -> None:
    message = made(reports_directory, balances=False)
    assert message["Subject"].endswith(": DOES NOT BALANCE")
    plain, html = bodies(message)
    assert plain.splitlines()[3].startswith("IT DOES NOT BALANCE")
    assert 'class="balance red"' in html
    for text in (plain, html):
        assert "0123456789ABCDEF" in text
        assert "no event of its acceptance" in text
        assert "make the report again" in text, "what to do next"
        assert "≠" in text
    assert not any(line.startswith("= ") for line in plain.splitlines())


def test_strangers_text_does_nothing_in_it(reports_directory: Path) -> None:
    plain, html = bodies(made(reports_directory))
    assert "alert(1)" in html
    assert "<script>" not in html
    for text in (plain, html):
        assert "\u202e" not in text
        assert "\x1b" not in text


def test_a_day_without_events_is_a_short_mail(reports_directory: Path) -> None:
    given: Any = {"totals": [dict.fromkeys(tables()["totals"][0], 0)]}
    message = made(reports_directory, given=given)
    assert message["Subject"].endswith(": no mail")
    for text in bodies(message):
        assert "there are no events in this period" in text


def test_numbers_are_written_in_the_readers_way() -> None:
    assert [Writing(language).number(1234567.0) for language in ("en", "de", "fr", "xx")] == [
        "1,234,567", "1.234.567", "1\u202f234\u202f567", "1,234,567",
    ]  # fmt: skip
    assert [Writing(language).number(1234.56) for language in ("en", "de", "fr")] == [
        "1,234.6",
        "1.234,6",
        "1\u202f234,6",
    ]
    assert Writing("de").number(0.125) == "0,125"


def test_shares_stand_below_each_other_and_what_is_not_all_is_not_said_to_be() -> None:
    shares = (1, 0.99999, 0.9, 0.0501, 0.0001, 0)
    assert [Writing().share(each) for each in shares] == ["100.0%", ">99.9%", "90.0%", "5.0%", "<0.1%", "0.0%"]
    assert [Writing(language).share(0.905) for language in ("de", "fr")] == ["90,5\u00a0%", "90,5\u00a0%"]
    assert [Writing("de").value(Kind.DECIMAL, each) for each in (7.25, 20.0, 1234.5)] == ["7,25", "20,00", "1.234,50"]


def test_points_have_a_sign_and_what_is_not_seen_is_no_change() -> None:
    differences = (0.0123, -0.3, 0.0004, -0.0004, 0.0)
    assert [Writing("de").points(each) for each in differences] == [
        "+1,2 points", "\u221230,0 points", "no change", "no change", "no change",
    ]  # fmt: skip


def test_words_are_english_whatever_numbers_the_reader_likes() -> None:
    for language in ("en", "de", "fr", "xx"):
        writing = Writing(language)
        assert writing.day(date(2026, 3, 1)) == "Sunday 1 March 2026"
        assert writing.short_day(DAY) == "Wed 18 Nov"
        assert writing.short_day(date(2026, 9, 3)) == "Thu 3 Sep"
    assert Writing("de").listed_day(DAY) == "Wed 2026-11-18"
    assert Writing("fr").period(Period.MONTH, date(2026, 8, 1)) == "August 2026"
    assert Writing().period(Period.WEEK, date(2026, 12, 28)) == "week 53 of 2026, 28 December – 3 January"


# -- sending


ANSWERS = {"inject_begin": {}, "inject_data": {}, "inject_end": {"queue_id": "0123456789ABC"}}


def ended(state: State = State.DONE, **named: Any) -> Run:
    return Run.objects.create(day=DAY, who="x", state=state, mail=True, ended_at=timezone.now(), **named)


def test_it_is_handed_to_the_core_once(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    it = ended()
    with FakeCore(ANSWERS) as core:
        assert send_due() == 1
        assert send_due() == 0
    (begin,) = core.asked("inject_begin")
    assert begin["recipients"] == ["ops@example.org", "boss@example.org"]
    data = b"".join(each["data"] for each in core.asked("inject_data"))
    assert b"Subject: Waypost: report of Wednesday 18 November 2026\r\n" in data
    it.refresh_from_db()
    assert it.mailed_at is not None
    assert it.mail_words == "0123456789ABC"


def test_while_the_core_is_away_it_waits_and_says_so(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    it = ended()
    assert send_due() == 0
    it.refresh_from_db()
    assert it.mail_words.startswith("not sent yet: ")
    with FakeCore(ANSWERS | {"inject_end": Refusal("the disk is full")}):
        assert send_due() == 0
    it.refresh_from_db()
    assert "the disk is full" in it.mail_words
    with FakeCore(ANSWERS):
        assert send_due() == 1


def test_that_it_could_not_be_made_is_mailed_too(reports_directory: Path) -> None:
    ended(State.FAILED, words="no Java \u202e<b>", log="line 1\nCaused by: <script>\x1b")
    with FakeCore(ANSWERS) as core:
        assert send_due() == 1
    data = b"".join(each["data"] for each in core.asked("inject_data"))
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    assert message["Subject"] == "Waypost: report of 2026-11-18 failed"
    plain, html = bodies(message)
    assert "no Java \\u202e<b>" in plain
    assert "no Java \\u202e&lt;b&gt;" in html
    assert "&lt;script&gt;\\x1b" in html


def test_a_run_that_was_killed_behind_its_day_is_mailed_as_that(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    began = timezone.now() - timedelta(minutes=1)
    message = failure_letter(ended(State.FAILED, words="killed by signal 9", begun_at=began), in_force())
    assert message["Subject"] == "Waypost: report of 2026-11-18 was made, but not all of its weeks and months"
    for text in bodies(parsed(message)):
        assert "was made, but not all of its weeks" in text
        assert "could not be made" not in text
        assert "killed by signal 9" in text
    later = timezone.now() + timedelta(minutes=1)
    message = failure_letter(ended(State.FAILED, words="killed", begun_at=later), in_force())
    assert message["Subject"] == "Waypost: report of 2026-11-18 failed"
    assert "could not be made" in bodies(parsed(message))[0]


def test_nobody_gets_what_is_stopped_old_or_for_nobody(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    ended(State.STOPPED)
    Run.objects.create(day=DAY, who="x", state=State.DONE, mail=True, ended_at=timezone.now() - timedelta(days=2))
    Run.objects.create(day=DAY, who="x", state=State.RUNNING, mail=True)
    with FakeCore(ANSWERS) as core:
        assert send_due() == 0
        Preferences.objects.update(recipients=[])
        ended()
        assert send_due() == 0
    assert core.asked("inject_begin") == []
    assert Run.objects.get(mail_words="no recipients configured").mail is False


# -- of several nodes one mails it


def _on_nodes(settings: Any) -> None:
    nodes = Nodes(database="host=db.example dbname=waypost")
    settings.WAYPOST = dataclasses.replace(settings.WAYPOST, nodes=nodes)
    settings.EXPORTER_SOCKET = settings.CONTROL_SOCKET


def test_the_node_whose_turn_it_is_mails_it_and_says_so(reports_directory: Path, settings: Any) -> None:
    _on_nodes(settings)
    make_report(reports_directory, Period.DAY, DAY)
    ended()
    with FakeCore(ANSWERS | {"letter": {"node": "mx1", "sent": "", "ours": True}}) as core:
        assert send_due() == 1
    assert core.asked("letter") == [{"day": "2026-11-18"}, {"day": "2026-11-18", "sent": "0123456789ABC"}]
    data = b"".join(each["data"] for each in core.asked("inject_data"))
    assert b"Message-ID: <waypost-report-of-2026-11-18@example.org>" in data, "from each node the same"


def test_the_others_are_told_when_the_exporter_answers_again_and_it_is_mailed_once(
    reports_directory: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, they were told for a minute; then another node mailed the report again."""
    _on_nodes(settings)
    monkeypatch.setattr(exporter, "SENT_AGAIN_S", 0.0)
    make_report(reports_directory, Period.DAY, DAY)
    it = ended()
    away = Refusal("no server of the database takes writes", Code.UNAVAILABLE)
    turn = {"node": "mx1", "sent": "", "ours": True}
    with FakeCore(ANSWERS | {"letter": lambda arguments: away if arguments.get("sent") else turn}) as core:
        assert send_due() == 1
        assert core.asked("letter")[-1] == {"day": "2026-11-18", "sent": "0123456789ABC"}
        told = len(core.asked("letter"))
        assert send_due() == 0
        assert core.asked("letter")[told:] == [{"day": "2026-11-18", "sent": "0123456789ABC"}]
        Run.objects.filter(pk=it.pk).update(mailed_at=None)  # killed before it was written down
        assert send_due() == 0
        core.answers["letter"] = {"node": "mx1", "sent": "0123456789ABC", "ours": False}
        assert send_due() == 0
        told = len(core.asked("letter"))
        assert send_due() == 0
        assert len(core.asked("letter")) == told, "the others know it"
    assert len(core.asked("inject_begin")) == 1
    it.refresh_from_db()
    assert it.mail_words == "0123456789ABC"


def test_what_another_node_mails_is_not_mailed_again(reports_directory: Path, settings: Any) -> None:
    _on_nodes(settings)
    make_report(reports_directory, Period.DAY, DAY)
    it = ended()
    with FakeCore(ANSWERS | {"letter": {"node": "mx2", "sent": "", "ours": False}}) as core:
        assert send_due() == 0
        it.refresh_from_db()
        assert (it.mail, it.mail_words) == (True, "not sent yet: node mx2 is about to send it")
        core.answers["letter"] = {"node": "mx2", "sent": "4OTHER", "ours": False}
        assert send_due() == 0
    it.refresh_from_db()
    assert (it.mail, it.mailed_at, it.mail_words) == (False, None, "mailed by node mx2: 4OTHER")
    assert core.asked("inject_begin") == []


def test_a_node_that_cannot_hand_it_in_or_ask_leaves_it_to_others(reports_directory: Path, settings: Any) -> None:
    _on_nodes(settings)
    make_report(reports_directory, Period.DAY, DAY)
    it = ended()
    answers = ANSWERS | {"letter": Refusal("no server of the database takes writes", Code.UNAVAILABLE)}
    with FakeCore(answers) as core:
        assert send_due() == 0
    assert core.asked("inject_begin") == []
    it.refresh_from_db()
    assert (it.mail, it.mail_words) == (True, "not sent yet: no server of the database takes writes")
    ours: dict[str, Any] = {
        "letter": {"node": "mx1", "sent": "", "ours": True},
        "inject_end": Refusal("the disk is full"),
    }
    with FakeCore(ANSWERS | ours) as core:
        assert send_due() == 0
    assert core.asked("letter")[-1] == {"day": "2026-11-18", "release": True}


def test_a_node_that_does_not_know_lets_the_others_go_first(reports_directory: Path, settings: Any) -> None:
    _on_nodes(settings)
    make_report(reports_directory, Period.DAY, DAY, balances=None)
    it = ended()
    with FakeCore(ANSWERS | {"letter": {"node": "mx1", "sent": "", "ours": True}}) as core:
        assert send_due() == 0
        assert core.asked("letter") == []
        Run.objects.update(ended_at=timezone.now() - timedelta(minutes=21))
        assert send_due() == 1
    it.refresh_from_db()
    assert it.mailed_at is not None


def test_that_a_node_could_not_make_it_is_its_own_mail(reports_directory: Path, settings: Any) -> None:
    _on_nodes(settings)
    ended(State.FAILED, words="no Java")
    with FakeCore(ANSWERS) as core:
        assert send_due() == 1
    assert core.asked("letter") == []


def test_page_mail_and_file_name_the_shards(reports_directory: Path) -> None:
    names = ("north", "<south>")
    given = tables() | {"shards": [{"shard": name, "number": at, "accepted": 7} for at, name in enumerate(names, 1)]}
    version = make_report(reports_directory, Period.DAY, DAY, given=given)
    path = version / "report.json"
    told = json.loads(path.read_text())
    told["balance"]["shards"] = [
        {"shard": 1, "name": names[0], "closed": False, "balances": True, "words": "It balances.", "accepted": 7},
        {"shard": 2, "name": names[1], "closed": False, "balances": None, "words": "The balance is unknown."},
    ]
    path.write_text(json.dumps(told))
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    plain, html = bodies(parsed(letter(report, in_force())))
    page = client_of("viewer").get("/reports/day/2026-11-18/").content.decode().replace("<wbr>", "")
    html, page = (re.sub("</?bdi>", "", text) for text in (html, page))
    assert "shard north (@1): It balances." in plain
    assert "shard <south> (@2): The balance is unknown." in plain
    assert "Shard north (@1): It balances." in html
    for text in (html, page):
        assert "&lt;south&gt; (@2)" in text
    assert '<th scope="row">north (@1)</th>' in page
    answer = client_of("viewer").get("/reports/day/2026-11-18/shards.csv")
    file = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    assert list(csv.reader(file.splitlines()))[1:] == [["north", "1", "7"], ["<south>", "2", "7"]]
