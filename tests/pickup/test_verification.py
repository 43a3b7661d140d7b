"""The report of sendmail -bv says what the routes and the next hop say, and a request is answered once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from mailcore.bounce.verified import Action, Finding
from mailcore.config.recipients import Recipients
from mailcore.config.relay import Relay
from mailcore.config.settings import Queue
from mailcore.config.transports import Transport
from mailcore.envelope import Origin
from mailcore.pickup.dropped import VERIFY_MAX
from mailcore.pickup.taking import Taken, Taking
from mailcore.pickup.verification import FINAL_MAX, Question, Verifier
from mailcore.pickup.verifier import AddressVerifier
from tests.bounce.test_verified import parsed
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.pickup.test_rewriting import Rewriting
from tests.pickup.test_taking import SETTINGS as SMALL
from tests.pickup.test_taking import home, inline_data, names_in, read, start, submit
from tests.simulated_disk import RandomChoice, SimulatedDisk

REFUSED = {"no@example.org": b"550 5.1.1 no such user\r\n", "late@example.org": b"451 4.3.0 later\r\n"}
READER = "author@example.org"
SETTINGS = dataclasses.replace(SMALL, queue=Queue(inline_limit=1_000_000))


class Answers:
    """Stands for ``AddressVerifier``: answers at the second look."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def findings(self, question: Question) -> Sequence[Finding] | None:
        self.questions.append(question)
        if len(self.questions) == 1:
            return None
        found = [Finding(each.address, Action.UNVERIFIED, "4.0.0", "x", each.original) for each in question.asked]
        return [*found, *question.known]


def request(disk: SimulatedDisk, *addresses: str) -> str:
    return submit(disk, b"Subject: x\n\n", sender="", recipients=(READER,), verify=addresses, user="kim")


def taking_from(disk: SimulatedDisk, verifier: Verifier, rewriting: Rewriting | None = None) -> Taking:
    taking = start(disk, rewriting, verifier=verifier, settings=SETTINGS)
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
        taking = taking_from(disk, AddressVerifier(settings, asyncio.get_running_loop()))

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


def test_the_final_addresses_are_asked_about_and_no_more_than_the_bound() -> None:
    disk, answers = home(), Answers()
    rewriting = Rewriting()
    rewriting.wrong = "slow@example.net"
    request(disk, "team@example.net", "kim@example.net", "slow@example.net", "all@example.net")
    taking = taking_from(disk, answers, rewriting)
    assert taking.look().envelopes == []
    found = report(disk, taking.look())
    (asked, again) = answers.questions
    assert asked == again
    assert (asked.sender, asked.login) == (READER, "kim")
    assert asked.asked[:3] == (
        ("kim@example.net", "team@example.net"), ("robin@example.net", "team@example.net"),
        ("u0@example.net", "all@example.net"),
    )  # fmt: skip
    assert len(asked.asked) == FINAL_MAX
    assert len(found) == 2 + 1 + 999
    assert "not asked" in found["u998@example.net"]["Diagnostic-Code"]
    assert found["slow@example.net"]["Status"] == "4.3.0"
    assert "the pattern takes too long" in found["slow@example.net"]["Diagnostic-Code"]


def test_a_request_waits_for_its_answers_keeps_no_mail_waiting_and_survives_a_power_failure() -> None:
    disk, answers = home(), Answers()
    name = request(disk, "x@example.net")
    other = submit(disk, b"Subject: x\n\nbody\n")
    taken = taking_from(disk, answers).look()
    assert [each.helo for each in taken.envelopes] == [f"maildrop/{other}"]
    assert [each for each, _ in taken.waiting] == [name]
    for seed in range(5):
        after = disk.crash(RandomChoice(seed))
        assert names_in(after) == {name}
        again = Answers()
        taking = taking_from(after, again)
        taking.look()
        end = taking.look().end
        assert [each.helo for each in read(after, end)].count(f"maildrop/{name}") == 1
        assert names_in(after) == set()


def test_a_request_beyond_the_bounds_is_set_aside_and_sends_nothing() -> None:
    disk = home()
    request(disk, *(f"x{number}@example.net" for number in range(VERIFY_MAX + 1)))
    request(disk, "no address")
    taken = taking_from(disk, Answers()).look()
    assert (len(taken.damaged), taken.envelopes) == (2, [])


async def test_requests_under_way_are_bounded_and_abandoned_ones_make_room() -> None:
    verifier = AddressVerifier(SETTINGS, asyncio.get_running_loop())
    questions = [Question(str(number), READER, "", ()) for number in range(15)]
    assert [verifier.findings(each) for each in questions] == [None] * 15
    assert len(verifier._requests) == 10

    async def answered() -> bool:
        verifier.findings(questions[14])
        return questions[14] in verifier._requests

    await eventually(answered, "room for a later request")
    assert len(verifier._requests) == 10
