"""The gate in front of the final dot: once, for all recipients, in time; and what is known of the message behind it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.deliverer.gate import Gate
from mailcore.deliverer.message_data import DamagedError
from mailcore.envelope import Status
from mailcore.frames import Deliver, Delivered
from mailcore.log.data_blocks import sums_of
from tests.deliverer.delivery import BODY, FixedHosts, Sender, outcomes, words
from tests.deliverer.lmtp_server import LmtpServer, storing
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving

A, B = "a@example.org", "b@example.org"
CHUNKING = ("PIPELINING", "8BITMIME", "CHUNKING")
PLAIN = ("PIPELINING", "8BITMIME")
DEFERRED = "deferred"
BIG = b"Subject: big\r\n\r\n" + (b"x" * 62 + b"\r\n") * 4_000


async def passed(sender: Sender, work: Deliver, gate: Gate, body: bytes = BODY) -> Delivered:
    data = sender.files.given(body, sums_of(body))
    data.gate = gate
    result, error = await sender.client.deliver(work, data)
    assert error is None
    return result


def one_by(keyword: str) -> dict[str, object]:
    """A sender that uses BDAT, or DATA."""
    return {"chunked": ["smtp"]} if keyword == "BDAT" else {}


@pytest.mark.parametrize("body", [BODY, BIG, b""], ids=["small", "big", "empty"])
@pytest.mark.parametrize("how", ["DATA", "BDAT"])
async def test_an_open_gate_lets_the_message_through(tmp_path: Path, how: str, body: bytes) -> None:
    async with serving(ScriptedServer(keywords=CHUNKING if how == "BDAT" else PLAIN)) as server:
        sender = Sender(tmp_path, server.port, **one_by(how))  # type: ignore[arg-type]
        gate = Gate(2)
        result = await passed(sender, sender.work(A, B, body=body), gate, body)
        assert [verdict.status for verdict in result.verdicts] == [Status.DELIVERED] * 2
        assert (gate.dot_sent, gate.refused) == (True, False)
        (message,) = server.messages
        assert message.data == (body if how == "DATA" else (b"\r\n" + body).replace(b"\r\n.", b"\r\n")[2:])


@pytest.mark.parametrize("how", ["DATA", "BDAT"])
async def test_a_closed_gate_gives_nothing_away(tmp_path: Path, how: str) -> None:
    async with serving(ScriptedServer(keywords=CHUNKING if how == "BDAT" else PLAIN)) as server:
        sender = Sender(tmp_path, server.port, **one_by(how))  # type: ignore[arg-type]
        gate = Gate(1)
        gate.is_closed = True
        result = await passed(sender, sender.work(A), gate)
        assert outcomes(result) == [(DEFERRED, "4.4.2")]
        await server.sessions[0].ended.wait()
        assert server.messages == []
        assert not gate.may_be_taken


@pytest.mark.parametrize("keywords", [PLAIN, (), CHUNKING], ids=["pipelining", "one by one", "chunks"])
async def test_a_refused_recipient_keeps_it_from_all_others(tmp_path: Path, keywords: tuple[str, ...]) -> None:
    async with serving(ScriptedServer(refuse={B: b"550 5.1.1 no\r\n"}, keywords=keywords)) as server:
        sender = Sender(tmp_path, server.port, chunked=["smtp"])
        gate = Gate(2)
        result = await passed(sender, sender.work(A, B), gate)
        assert outcomes(result)[0][0] == DEFERRED
        assert outcomes(result)[1] == ("bounced", "5.1.1")
        assert server.messages == []
        assert not gate.dot_sent
        # The connection is closed, or fit for the next message.
        assert outcomes(await sender.send(A)) == [("delivered", "2.0.0")]


async def test_a_server_that_takes_fewer_recipients_at_once_gets_none(tmp_path: Path) -> None:
    async with serving(ScriptedServer(keywords=("PIPELINING", "LIMITS RCPTMAX=1"))) as server:
        sender = Sender(tmp_path, server.port)
        gate = Gate(2)
        result = await passed(sender, sender.work(A, B), gate)
        assert {status for status, _ in outcomes(result)} == {DEFERRED}
        assert server.messages == []
        assert not gate.dot_sent


@pytest.mark.parametrize("how", ["DATA", "BDAT"])
@pytest.mark.parametrize("reply", [b"451 4.3.0 not now\r\n", b"421 4.3.0 bye\r\n", b"554 5.7.1 never\r\n"])
async def test_a_refusal_of_the_dot_is_an_answer_and_no_other_host_gets_it(
    tmp_path: Path, how: str, reply: bytes
) -> None:
    answers: dict[str, Answer | list[Answer]] = {"DOT": reply, "LAST": reply}
    async with serving(ScriptedServer(answers, keywords=CHUNKING if how == "BDAT" else PLAIN)) as server:
        finder = FixedHosts("127.0.0.1", "127.0.0.1")
        sender = Sender(tmp_path, server.port, finder, **one_by(how))  # type: ignore[arg-type]
        gate = Gate(1)
        result = await passed(sender, sender.work(A), gate)
        assert outcomes(result)[0][0] == ("bounced" if reply[:1] == b"5" else DEFERRED)
        assert not gate.may_be_taken
        assert len(server.messages) == 1
        assert len(server.sessions) == 1


@pytest.mark.parametrize("how", ["DATA", "BDAT"])
@pytest.mark.parametrize("act", [Act.RESET, Act.HANG_UP, Act.SILENCE, b"354 go on\r\n", b"nonsense\r\n"])
async def test_without_an_answer_to_the_dot_it_may_be_taken(tmp_path: Path, how: str, act: Answer) -> None:
    answers: dict[str, Answer | list[Answer]] = {"DOT": act, "LAST": act}
    async with serving(ScriptedServer(answers, keywords=CHUNKING if how == "BDAT" else PLAIN)) as server:
        sender = Sender(tmp_path, server.port, final_timeout_s=0.5, **one_by(how))  # type: ignore[arg-type]
        gate = Gate(1)
        result = await passed(sender, sender.work(A), gate)
        assert outcomes(result)[0][0] == DEFERRED
        assert gate.may_be_taken
        assert len(server.messages) == 1


async def test_an_unknown_command_instead_of_the_last_chunk_is_an_answer(tmp_path: Path) -> None:
    reply = b"502 5.5.1 not implemented\r\n"
    async with serving(ScriptedServer({"LAST": reply, "BDAT": reply}, keywords=CHUNKING)) as server:
        sender = Sender(tmp_path, server.port, chunked=["smtp"])
        gate = Gate(1)
        assert outcomes(await passed(sender, sender.work(A), gate))[0][0] == DEFERRED
        assert not gate.may_be_taken


@pytest.mark.parametrize("fate", [b"250 2.1.5 stored\r\n", b"452 4.2.2 full\r\n", Act.HANG_UP])
async def test_over_lmtp_the_one_recipient_is_the_message(tmp_path: Path, fate: Answer) -> None:
    path = tmp_path / "lmtp"
    async with storing(LmtpServer({A: fate}), path):
        sender = Sender(tmp_path, 24, FixedHosts(str(path)), lmtp=["smtp"])
        gate = Gate(1)
        work = sender.work(A)
        work = msgspec.structs.replace(work, next_hop=type(work.next_hop)(str(path), 0, False))
        result = await passed(sender, work, gate)
        assert gate.refused == (fate == b"452 4.2.2 full\r\n")
        assert (result.verdicts[0].status is Status.DELIVERED) == (fate == b"250 2.1.5 stored\r\n"), words(result)


async def test_over_lmtp_no_other_host_gets_what_one_has_refused(tmp_path: Path) -> None:
    path = tmp_path / "lmtp"
    async with storing(LmtpServer({A: b"452 4.2.2 full\r\n"}), path) as store:
        sender = Sender(tmp_path, 24, FixedHosts(str(path), str(path)), lmtp=["smtp"])
        work = sender.work(A)
        work = msgspec.structs.replace(work, next_hop=type(work.next_hop)(str(path), 0, False))
        result = await passed(sender, work, Gate(1))
        assert "4.2.2 full" in words(result)
        assert len(store.sessions) == 1


async def test_data_that_changed_on_its_way_is_not_sent(tmp_path: Path) -> None:
    sender = Sender(tmp_path, 1)
    with pytest.raises(DamagedError):
        sender.files.given(BODY + b"x", sums_of(BODY))
