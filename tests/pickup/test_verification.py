"""The report of sendmail -bv says what the routes and the next hop say, and a request is answered once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from mailcore.bounce.verified import Action, Finding
from mailcore.config.maildrop import Maildrop
from mailcore.config.recipients import Recipients
from mailcore.config.relay import Relay
from mailcore.config.routing_of import routing_of
from mailcore.config.settings import Queue
from mailcore.config.transports import Transport
from mailcore.control.local_filter import Filtered, WaitingData
from mailcore.envelope import Envelope, Origin, Recipient
from mailcore.pickup.dropped import Dropped
from mailcore.pickup.taking import Taken, Taking
from mailcore.pickup.verification import Asked, Question, Verifier
from mailcore.pickup.verifier import AddressVerifier
from mailcore.queue.spool import Spool
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.header_section import HeaderRules
from mailcore.rewriting.rewriting import Rewritten
from tests.bounce.test_verified import parsed
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.pickup.test_rewriting import Rewriting
from tests.pickup.test_taking import MAILDROP, home, inline_data, names_in, read, start, submit
from tests.pickup.test_taking import SETTINGS as SMALL
from tests.simulated_disk import RandomChoice, SimulatedDisk

REFUSED = {"no@example.org": b"550 5.1.1 no such user\r\n", "late@example.org": b"451 4.3.0 later\r\n"}
READER = "author@example.org"
SETTINGS = dataclasses.replace(SMALL, queue=Queue(inline_limit=1_000_000))


class Answers:
    """Stands for ``AddressVerifier``. ``findings`` are there at once; else the test answers."""

    def __init__(self, answers: bool = True) -> None:
        self.questions: list[Question] = []
        self.futures: list[Future[list[Finding]]] = []
        self._answers = answers

    def begin(self, question: Question) -> Future[list[Finding]]:
        self.questions.append(question)
        self.futures.append(Future())
        if self._answers:
            self.answer(-1)
        return self.futures[-1]

    def answer(self, number: int) -> None:
        asked = self.questions[number].asked
        found = [Finding(each.address, Action.UNVERIFIED, "4.0.0", "x", each.original) for each in asked]
        self.futures[number].set_result(found)


class CountingRewriting(Rewriting):
    def __init__(self) -> None:
        super().__init__()
        self.applied: list[str] = []

    def apply(self, envelope: Envelope, more: Sequence[Recipient]) -> Rewritten:
        self.applied += [each.address for each in envelope.recipients]
        return super().apply(envelope, more)


class Refusing:
    """Stands for ``Filtering``: nothing passes."""

    def waiting(self, spool: Spool, queue_id: str) -> WaitingData:
        raise AssertionError

    def ask(self, spool: Spool, envelope: Envelope, data: bytes | WaitingData, **_: int) -> Filtered:
        assert isinstance(data, bytes)
        return Filtered(envelope, data, why="" if envelope.recipients[0].route else "no")


def request(disk: SimulatedDisk, *addresses: str) -> str:
    return submit(disk, b"Subject: x\n\n", sender="", recipients=(READER,), verify=addresses, user="kim")


def taking_from(disk: SimulatedDisk, verifier: Verifier, rewriting: Rewriting | None = None, **more: Any) -> Taking:
    taking = start(disk, rewriting, verifier=verifier, **{"settings": SETTINGS, **more})
    taking.recover()
    return taking


def report(disk: SimulatedDisk, taken: Taken) -> dict[str, dict[str, str]]:
    """The fields of the only report, by address."""
    (data,) = inline_data(disk, taken.end)
    assert data.isascii()
    groups = parsed(data.replace(b"\r\n..", b"\r\n."))[2]
    return {group["Final-Recipient"].partition("; ")[2]: group for group in groups[1:]}


async def test_the_report_says_what_was_asked_and_what_was_not() -> None:
    async with serving(ScriptedServer(refuse=REFUSED)) as hop, serving(ScriptedServer()) as other:
        routes = {
            "example.org": f"smtp:[127.0.0.1]:{hop.port}", "example.com": f"smtp:[127.0.0.1]:{other.port}",
            "gone.example": "error:5.1.2 gone", "thrown.example": "discard:", "held.example": "hold",
            "down.example.org": "smtp:[127.0.0.1]:1",
        }  # fmt: skip
        settings = dataclasses.replace(
            SETTINGS,
            routes=routes,
            transports={"smtp": Transport()},
            relay=Relay(domains=("example.org", ".example.org")),
            recipients=Recipients(known_by="next_hop"),
        )
        disk = home()
        request(
            disk, "kim@example.org", "no@example.org", "late@example.org", "x@example.com", "x@gone.example",
            "x@thrown.example", "x@held.example", "x@down.example.org",
        )  # fmt: skip
        taking = taking_from(disk, AddressVerifier(settings, asyncio.get_running_loop(), lambda: routing_of(settings)))

        async def taken() -> Taken | None:
            look = await asyncio.to_thread(taking.look)
            return look if look.envelopes else None

        look = await eventually(taken, "the report")
        found = report(disk, look)
        assert {address: (group["Action"], group["Status"]) for address, group in found.items()} == {
            "kim@example.org": ("deliverable", "2.1.5"),
            "no@example.org": ("undeliverable", "5.1.1"),
            "late@example.org": ("undeliverable", "4.1.1"),
            "x@example.com": ("unverified", "4.0.0"),
            "x@gone.example": ("undeliverable", "5.1.2"),
            "x@thrown.example": ("deliverable", "2.0.0"),
            "x@held.example": ("unverified", "4.0.0"),
            "x@down.example.org": ("undeliverable", "4.1.1"),
        }
        assert "250 2.1.5 Ok" in found["kim@example.org"]["Diagnostic-Code"]
        assert "not asked: mail goes to smtp:[127.0.0.1]" in found["x@example.com"]["Diagnostic-Code"]
        assert other.sessions == []
        assert not any("DATA" in session.verbs for session in hop.sessions)
        (envelope,) = look.envelopes
        assert (envelope.sender, envelope.origin) == ("", Origin.LOCAL)
        assert [each.address for each in envelope.recipients] == [READER]
        taking.close()


@pytest.mark.parametrize(
    ("slow", "status", "text"), [("dns", "4.4.3", "the DNS had no answer about"), ("hop", "4.4.1", "no answer from")]
)
async def test_what_is_late_is_named(monkeypatch: pytest.MonkeyPatch, slow: str, status: str, text: str) -> None:
    settings = dataclasses.replace(
        SETTINGS,
        transports={"smtp": Transport()},
        relay=Relay(domains=("example.org",)),
        recipients=Recipients(known_by="next_hop"),
        maildrop=Maildrop(verify_timeout_s=1.0),
        routes={"example.org": "smtp:[127.0.0.1]:1"},
    )
    verifier = AddressVerifier(settings, asyncio.get_running_loop(), lambda: routing_of(settings))

    async def late(*_: object) -> None:
        asyncio.get_running_loop().call_soon(limits[0].reschedule, 0.0)
        await asyncio.Event().wait()

    def timeout(seconds: float) -> asyncio.Timeout:
        assert seconds == 1.0
        limits.append(asyncio.Timeout(None))
        return limits[0]

    limits: list[asyncio.Timeout] = []
    monkeypatch.setattr("mailcore.pickup.verifier.asyncio.timeout", timeout)
    monkeypatch.setattr(verifier._prober, "find" if slow == "dns" else "ask", late)
    question = Question(READER, "", (Asked("x@example.org"),))
    (finding,) = await asyncio.wrap_future(await asyncio.to_thread(verifier.begin, question))
    assert (finding.action, finding.status) == (Action.UNDELIVERABLE, status)
    assert finding.text.startswith(text)
    assert "smtp:[127.0.0.1]:1 within 1 s ([maildrop] verify_timeout_s)" in finding.text


def test_the_final_addresses_are_asked_about_and_no_more_than_the_bound() -> None:
    disk, answers = home(), Answers()
    rewriting = CountingRewriting()
    rewriting.wrong = "slow@example.net"
    request(disk, "team@example.net", "kim@example.net", "TEAM@example.net", "slow@example.net", "all@example.net")
    taking = taking_from(disk, answers, rewriting)
    assert taking.look().envelopes == []
    taken = taking.look()
    found = report(disk, taken)
    (asked,) = answers.questions
    assert rewriting.applied.count("team@example.net") == 1
    assert "TEAM@example.net" not in rewriting.applied
    assert (asked.sender, asked.login) == (READER, "kim")
    assert asked.asked[:3] == (
        ("kim@example.net", "team@example.net"), ("robin@example.net", "team@example.net"),
        ("u0@example.net", "all@example.net"),
    )  # fmt: skip
    assert (len(asked.asked), len(asked.known), asked.more) == (99, 1, 2 + 999 - 99)
    assert len(found) == 100
    (data,) = inline_data(disk, taken.end)
    assert "and 902 more addresses, not asked about: one report has at most 100." in parsed(data)[1]
    assert found["slow@example.net"]["Status"] == "4.3.0"
    assert "the pattern takes too long" in found["slow@example.net"]["Diagnostic-Code"]


def test_the_bounds_are_settings() -> None:
    settings = dataclasses.replace(SETTINGS, maildrop=Maildrop(verify_addresses_max=2, verify_requests_max=1))
    disk, answers = home(), Answers()
    too_many = request(disk, "a@example.net", "b@example.net", "c@example.net")
    request(disk, "all@example.net")
    request(disk, "all@example.net")
    taking = taking_from(disk, answers, Rewriting(), settings=settings)
    looks = [taking.look() for _ in range(6)]
    assert [path.rpartition(".")[2] for look in looks for path, _ in look.damaged] == [too_many]
    assert max(len(look.envelopes) for look in looks) == 1
    assert [(len(each.asked), each.more) for each in answers.questions] == [(2, 997), (2, 997)]


def test_a_request_waits_for_its_answers_keeps_no_mail_waiting_and_survives_a_power_failure() -> None:
    disk = home()
    name = request(disk, "x@example.net")
    other = submit(disk, b"Subject: x\n\nbody\n")
    taken = taking_from(disk, Answers()).look()
    assert [each.helo for each in taken.envelopes] == [f"maildrop/{other}"]
    assert [each for each, _ in taken.waiting] == [name]
    for seed in range(5):
        after = disk.crash(RandomChoice(seed))
        assert names_in(after) == {name}
        taking = taking_from(after, Answers())
        taking.look()
        end = taking.look().end
        assert [each.helo for each in read(after, end)].count(f"maildrop/{name}") == 1
        assert names_in(after) == set()


def test_a_request_beyond_the_bounds_is_set_aside_and_sends_nothing() -> None:
    disk = home()
    request(disk, *(f"x{number}@example.net" for number in range(101)))
    request(disk, "no address")
    taken = taking_from(disk, Answers()).look()
    assert (len(taken.damaged), taken.envelopes) == (2, [])


def test_every_request_is_answered_once_however_many_there_are() -> None:
    disk, answers = home(), Answers()
    names = {request(disk, "x@example.net") for _ in range(35)}
    taking = taking_from(disk, answers)
    reported = [envelope.helo for _ in range(10) for envelope in taking.look().envelopes]
    assert sorted(reported) == sorted(f"maildrop/{name}" for name in names)
    assert len(answers.questions) == 35


def test_requests_that_wait_cost_no_look_at_their_files(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, answers, opened = home(), Answers(answers=False), list[str]()
    monkeypatch.setattr(
        "mailcore.pickup.taking.Dropped",
        lambda *of: opened.append(of[2]) or Dropped(*of),  # type: ignore[func-returns-value]
    )
    for number in range(30):
        request(disk, f"x{number}@example.net")
    taking = taking_from(disk, answers)
    taking.look()
    assert (len(opened), len(answers.questions)) == (30, 10)
    for _ in range(5):
        taking.look()
    assert len(opened) == 30
    answers.answer(0)
    taking.look()
    assert (len(opened), len(answers.questions)) == (31, 10)
    taking.look()
    assert (len(opened), len(answers.questions)) == (32, 11)


def test_a_report_that_cannot_be_queued_yet_asks_no_server_again(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, answers, rewriting = home(), Answers(), Rewriting()
    rewriting.wrong = READER
    request(disk, "x@example.net")
    taking = taking_from(disk, answers, rewriting)
    for _ in range(200):  # the clock of the test ticks with each look
        assert taking.look().envelopes == []
    assert len(answers.questions) == 1
    rewriting.wrong = ""
    taken = [envelope for _ in range(70) for envelope in taking.look().envelopes]
    assert (len(taken), len(answers.questions), names_in(disk)) == (1, 1, set())


def test_more_requests_than_places_whose_reports_cannot_be_queued_ask_no_server_again() -> None:
    settings = dataclasses.replace(SETTINGS, maildrop=Maildrop(verify_requests_max=2))
    disk, answers, rewriting = home(), Answers(), Rewriting()
    rewriting.wrong = READER
    for number in range(4):
        request(disk, f"x{number}@example.net")
    taking = taking_from(disk, answers, rewriting, settings=settings)
    for _ in range(200):  # the clock of the test ticks with each look
        assert taking.look().envelopes == []
    assert len(answers.questions) == 2  # the others wait for a place
    rewriting.wrong = ""
    taken = [envelope for _ in range(140) for envelope in taking.look().envelopes]
    assert (len(taken), len(answers.questions), names_in(disk)) == (4, 4, set())


def test_a_request_whose_file_is_gone_is_forgotten_and_makes_room() -> None:
    settings = dataclasses.replace(SETTINGS, maildrop=Maildrop(verify_requests_max=1))
    disk, answers = home(), Answers(answers=False)
    name = request(disk, "x@example.net")
    taking = taking_from(disk, answers, settings=settings)
    taking.look()
    request(disk, "y@example.net")
    taking.look()
    assert len(answers.questions) == 1
    disk.unlink(f"{MAILDROP}/{name}")
    taking.look()
    assert answers.futures[0].cancelled()
    taking.look()
    assert [each.asked[0].address for each in answers.questions] == ["x@example.net", "y@example.net"]


def test_another_request_under_the_same_name_gets_no_answer_of_the_first() -> None:
    disk, answers = home(), Answers()
    name = request(disk, "x@example.net")
    taking = taking_from(disk, answers)
    taking.look()
    disk.unlink(f"{MAILDROP}/{name}")
    submit(disk, b"x\n", name, sender="", recipients=("other@example.org",), verify=("y@example.net",))
    assert taking.look().envelopes == []
    assert "y@example.net" in report(disk, taking.look())


def test_another_request_under_the_same_name_takes_the_only_place_of_the_first() -> None:
    settings = dataclasses.replace(SETTINGS, maildrop=Maildrop(verify_requests_max=1))
    disk, answers, rewriting = home(), Answers(), Rewriting()
    rewriting.wrong = READER
    name = request(disk, "x@example.net")
    taking = taking_from(disk, answers, rewriting, settings=settings)
    for _ in range(5):
        assert taking.look().envelopes == []
    disk.unlink(f"{MAILDROP}/{name}")
    submit(disk, b"x\n", name, sender="", recipients=(READER,), verify=("y@example.net",))
    rewriting.wrong = ""
    taken = [envelope for _ in range(140) for envelope in taking.look().envelopes]
    assert (len(taken), names_in(disk)) == (1, set())
    assert [each.asked[0].address for each in answers.questions] == ["x@example.net", "y@example.net"]


@pytest.mark.parametrize("error", [TimeoutError("x"), RuntimeError("x")])
def test_a_fault_of_ours_is_logged_and_the_request_is_kept_and_tried_again(error: Exception) -> None:
    disk, answers = home(), Answers(answers=False)
    name = request(disk, "x@example.net")
    taking = taking_from(disk, answers)
    taking.look()
    answers.futures[0].set_exception(error)
    taken = taking.look()
    assert [each for each, _ in taken.failed] == [name]
    assert "internal error" in taken.failed[0][1]
    assert type(error).__name__ in taken.failed[0][1]
    assert (taken.damaged, names_in(disk)) == ([], {name})
    for _ in range(70):
        taking.look()
    assert len(answers.questions) == 2
    answers.answer(1)
    assert len(taking.look().envelopes) == 1


def test_a_report_passes_no_header_check_and_no_milter(tmp_path: Path) -> None:
    file = tmp_path / "checks"
    file.write_text("/^(Subject|Received|From):/ REJECT\n")
    disk, answers = home(), Answers()
    request(disk, "x@example.net")
    rewriting = Rewriting(HeaderRules((read_checks(str(file)),)))
    taking = taking_from(disk, answers, rewriting, local_filter=Refusing())
    taking.look()
    (envelope,) = taking.look().envelopes
    assert [(each.address, each.route) for each in envelope.recipients] == [(READER, "")]
    submit(disk, b"Subject: x\n\nbody\n")
    taken = taking.look()
    assert taken.envelopes[0].recipients[0].route.startswith("error:")
