"""BDAT in sessions with milters: to them it is DATA, and what they change is stored as after DATA."""

from __future__ import annotations

import pytest

from mailcore.log.data_blocks import sums_of
from tests.eventually import eventually
from tests.milter.scripted import ACCEPT, CONTINUE, DISCARD, REJECT, SILENT, TEMPFAIL, add_header, milter, reply_code
from tests.receiver.milters import BODY, MESSAGE, session
from tests.receiver.server_in_process import Client

RAW = MESSAGE.replace(b"\r\n.", b"\r\n")
ENVELOPE = b"MAIL FROM:<a@example.com>\r\nRCPT TO:<b@example.org>\r\n"
ALL, NO_ANSWERS, NO_DATA = 0, 0xFF080, 0x200


def chunk(data: bytes, last: bool = False) -> bytes:
    return b"BDAT %d%b\r\n%b" % (len(data), b" LAST" if last else b"", data)


async def heard(client: Client, sent: bytes, count: int) -> list[bytes]:
    await client.send(sent)
    return [reply[:3] for reply in await client.replies(count)]


@pytest.mark.parametrize("steps", [ALL, NO_ANSWERS, NO_DATA])
@pytest.mark.parametrize("cut", [0, 1, 25, len(RAW) - 1, len(RAW)])
@pytest.mark.parametrize("inline_limit", [65_536, 10])
async def test_a_message_in_chunks_is_shown_and_changed_as_after_data(steps: int, cut: int, inline_limit: int) -> None:
    added = add_header("X-New", b"1") + CONTINUE
    async with (
        milter(steps=steps, script={"E": added}) as filter_,
        session(filter_, inline_limit=inline_limit) as (server, client),
    ):
        await client.hello()
        for _ in range(2):  # the second finds nothing of the first
            sent = ENVELOPE + chunk(RAW[:cut]) + chunk(RAW[cut:], last=True) + b"NOOP\r\n"
            assert await heard(client, sent, 5) == 5 * [b"250"]
        assert filter_.steps_seen().count("T") == (0 if steps == NO_DATA else 2)
        assert filter_.body() == BODY + BODY
        assert len(server.intake.messages) == 2
        for envelope, _, data in server.intake.messages:
            assert data.endswith(MESSAGE.replace(b"x-spam:2\r\n", b"x-spam:2\r\nX-New: 1\r\n"))
            assert envelope.data_sums == sums_of(data)
        assert server.intake.failures == []


async def test_binary_octets_are_the_body_of_a_milter_and_stored_as_they_came() -> None:
    binary = b"Subject: b\r\n\r\n\x00\r\n.\r\n\n.\r\r\n..\xff\r"
    async with milter() as filter_, session(filter_) as (server, client):
        await client.hello()
        envelope = ENVELOPE.replace(b"com>", b"com> BODY=BINARYMIME")
        assert await heard(client, envelope + chunk(binary, last=True), 3) == 3 * [b"250"]
        assert filter_.body() == binary.partition(b"\r\n\r\n")[2]
        (_, _, data) = server.intake.messages[0]
        assert data.endswith(b"Subject: b\r\n\r\n\x00\r\n..\r\n\n.\r\r\n...\xff\r")


@pytest.mark.parametrize(
    ("answer", "code"), [(REJECT, b"550"), (TEMPFAIL, b"451"), (reply_code(b"554 5.7.1 no"), b"554")]
)
@pytest.mark.parametrize("size", [0, 20])
async def test_a_refusal_of_data_refuses_the_first_chunk_and_its_octets_are_no_commands(
    answer: bytes, code: bytes, size: int
) -> None:
    async with milter(script={"T": answer}) as filter_, session(filter_) as (server, client):
        await client.hello()
        octets = (b"QUIT\r\n" * 20)[:size]
        assert await heard(client, ENVELOPE + chunk(octets), 3) == [b"250", b"250", code]
        assert await heard(client, chunk(octets, last=True) + b"NOOP\r\n", 2) == [b"503", b"250"]
        assert server.intake.messages == []
        assert [(each.stage, each.reply[:3].encode()) for each in server.intake.refusals] == [("DATA", code)]
        assert server.intake.refusals[0].milter == filter_.address
        filter_.script = {}
        assert await heard(client, ENVELOPE + chunk(RAW, last=True), 3) == 3 * [b"250"]
        assert len(server.intake.messages) == 1


@pytest.mark.parametrize("answer", [ACCEPT, DISCARD])
async def test_a_milter_that_accepts_or_discards_at_data_sees_no_more(answer: bytes) -> None:
    async with milter(script={"T": answer}) as filter_, session(filter_) as (server, client):
        await client.hello()
        assert await heard(client, ENVELOPE + chunk(RAW, last=True), 3) == 3 * [b"250"]
        assert "L" not in filter_.steps_seen()
        assert len(server.intake.messages) == (answer == ACCEPT)


@pytest.mark.long
async def test_a_client_that_goes_while_a_milter_is_asked_leaves_nothing_behind() -> None:
    async with milter(script={"T": SILENT}) as filter_, session(filter_) as (server, client):
        await client.hello()
        await client.send(ENVELOPE + chunk(RAW))
        await eventually(lambda: "T" in filter_.steps_seen())
        client.reset()
        await eventually(lambda: not filter_.open and not server.server.sessions)
        assert server.intake.messages == []
        assert server.intake.failures == []
