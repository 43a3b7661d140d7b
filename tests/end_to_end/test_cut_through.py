"""Cut-through with real processes and sockets: a message is with the next hop, or in the queue, or the client keeps it."""

from __future__ import annotations

import asyncio
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mailcore.lab.lab import Lab
from tests.deliverer.scripted_server import Act, Answer, ScriptedServer, serving
from tests.eventually import PATIENCE_S
from tests.running.running_core import SENDER, RunningCore, Sections

MARK = b"a word that is in no other file"
DATA = b"Subject: passed on\r\nMessage-ID: <one@sender.example>\r\n\r\n" + MARK + b"\r\n.. two dots\r\n"
TO = "to@passed.example"
NEVER_S = 300.0  # of the setting: as good as never


@asynccontextmanager
async def cutting(
    directory: Path,
    server: ScriptedServer,
    *,
    wait_s: float = NEVER_S,
    sections: Sections | None = None,
    **transport: Any,
) -> AsyncIterator[RunningCore]:
    """A core whose mail all goes to ``server``, with cut-through."""
    merged = {"transports.smtp": {"cut_through": True, "cut_through_wait_s": wait_s, **transport}, **(sections or {})}
    core = RunningCore(directory, {"*": f"smtp:[127.0.0.1]:{server.port}"}, merged)
    await core.start()
    try:
        await until_open(core)
        yield core
    finally:
        await core.control.close()
        core.stop()


async def until_open(core: RunningCore) -> None:
    """Until a deliverer has come: before, no message can be passed on."""

    async def there() -> bool:
        return bool((await core.ask("state"))["deliverers"])

    await core.eventually(there, "a deliverer")


def told(
    core: RunningCore, *recipients: str, data: bytes = DATA, rcpt: tuple[str, ...] = (), mail: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Sends a message; returns the reply to its dot."""
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        assert client.mail(SENDER, mail)[0] == 250
        for recipient in recipients or (TO,):
            assert client.rcpt(recipient, rcpt)[0] == 250
        code, reply = client.data(data)
    return code, reply.decode()


async def sent(core: RunningCore, *recipients: str, **how: Any) -> tuple[int, str]:
    return await asyncio.to_thread(told, core, *recipients, **how)


def on_disk(core: RunningCore) -> list[str]:
    """The files of the home that have data of the message."""
    return sorted(path.name for path in core.home.rglob("*") if path.is_file() and MARK in path.read_bytes())


def queue_id_of(reply: str) -> str:
    return reply.partition(" as ")[2].partition(":")[0]


async def balance(core: RunningCore) -> dict[str, int]:
    state = await core.ask("state")
    terms: dict[str, int] = state["balance"]["recipients"]
    assert terms["difference"] == 0
    assert state["balance"]["messages"]["difference"] == 0
    return terms


async def test_the_next_hop_has_the_message_when_the_client_hears_250_and_nothing_is_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:
        code, reply = await sent(core, TO, "and@passed.example")
        assert code == 250
        assert reply.startswith("2.0.0 Ok: passed on as ")
        assert reply.endswith(": 250 2.0.0 Ok: queued as 4F")
        (message,) = server.messages  # it was there before the client heard
        assert message.recipients == [f"<{TO}>", "<and@passed.example>"]
        assert message.data.partition(b"\r\n\r\n")[2] == DATA.partition(b"\r\n\r\n")[2].replace(b"\r\n..", b"\r\n...")
        assert b"Received: from client.example" in message.data
        assert on_disk(core) == []
        assert not list((core.home / "queue").glob("incoming.*/*.seg"))  # neither data nor envelope
        await core.until_removed(queue_id_of(reply))
        assert [line["event"] for line in core.log() if line.get("queue_id") == queue_id_of(reply)] == [
            "accepted", "delivery", "delivery", "removed",
        ]  # fmt: skip
        terms = await balance(core)
        assert (terms["accepted"], terms["delivered"], terms["queued"]) == (2, 2, 0)


REFUSALS: list[tuple[str, dict[str, Answer | list[Answer]]]] = [
    ("GREETING", {"GREETING": [b"421 4.3.2 not now\r\n", b"220 ready\r\n"]}),
    ("lost before MAIL", {"MAIL": [Act.HANG_UP, b"250 Ok\r\n"]}),
    ("MAIL", {"MAIL": [b"451 4.3.0 not now\r\n", b"250 Ok\r\n"]}),
    ("RCPT", {"RCPT": [b"450 4.2.0 not now\r\n", b"250 Ok\r\n"]}),
    ("DATA", {"DATA": [b"354 go on\r\n"], "DOT": [b"450 4.3.0 not now\r\n", b"250 Ok\r\n"]}),
    ("DOT", {"DOT": [b"451 4.3.0 not now\r\n", b"250 Ok\r\n"]}),
    ("DOT and the end", {"DOT": [b"421 4.3.0 not now\r\n", b"250 Ok\r\n"]}),
]


@pytest.mark.parametrize("answers", [answers for _, answers in REFUSALS], ids=[name for name, _ in REFUSALS])
@pytest.mark.parametrize("pipelining", [True, False])
async def test_a_temporary_refusal_stores_the_message_and_the_client_hears_that(
    tmp_path: Path, answers: dict[str, Answer | list[Answer]], pipelining: bool
) -> None:
    server = ScriptedServer(
        {verb: list(each) if isinstance(each, list) else each for verb, each in answers.items()},
        keywords=("PIPELINING", "8BITMIME") if pipelining else ("8BITMIME",),
    )
    async with serving(server), cutting(tmp_path, server) as core:
        code, reply = await sent(core)
        assert (code, reply.split()[:3]) == (250, ["2.0.0", "Ok:", "queued"])
        queue_id = reply.split()[-1]
        await core.until_removed(queue_id)
        arrived = [message for message in server.messages if message.data]  # a pipelined DATA may be taken back
        assert len(arrived) == (2 if "DOT" in answers else 1)
        events = [line["event"] for line in core.log() if line.get("queue_id") == queue_id]
        assert sorted(events) == ["accepted", "delivery", "not_passed_on", "removed"], [
            line for line in core.log() if line.get("queue_id") == queue_id
        ]
        terms = await balance(core)
        assert (terms["accepted"], terms["delivered"], terms["queued"]) == (1, 1, 0)


@pytest.mark.parametrize("verb", ["MAIL", "RCPT", "DATA", "DOT"])
async def test_a_permanent_refusal_stores_the_message_and_returns_it(tmp_path: Path, verb: str) -> None:
    usual = b"354 go on\r\n" if verb == "DATA" else b"250 Ok\r\n"
    no = b"550 5.7.1 never\r\n"
    async with serving(ScriptedServer({verb: [no, no, usual]})) as server, cutting(tmp_path, server) as core:
        code, reply = await sent(core)
        assert (code, reply.split()[:3]) == (250, ["2.0.0", "Ok:", "queued"])
        await core.until_removed(reply.split()[-1])
        await core.until_empty()
        report = server.messages[-1]
        assert report.sender.split()[0] == "<>"
        assert report.recipients == [f"<{SENDER}>"]
        assert b"550 5.7.1 never" in report.data
        terms = await balance(core)
        assert (terms["bounced"], terms["queued"]) == (1, 0)


@pytest.mark.parametrize("pipelining", [True, False])
async def test_if_some_of_several_recipients_are_refused_nobody_gets_it_twice(tmp_path: Path, pipelining: bool) -> None:
    server = ScriptedServer(
        refuse={"other@passed.example": b"450 4.2.0 not now\r\n"}, keywords=("PIPELINING",) if pipelining else ()
    )
    async with serving(server), cutting(tmp_path, server) as core:
        code, reply = await sent(core, TO, "other@passed.example")
        assert (code, reply.split()[2]) == (250, "queued")
        queue_id = reply.split()[-1]
        await core.until_in(queue_id, "retry")
        server.refuse.clear()
        await core.until_removed(queue_id)
        assert [message.recipients for message in server.messages] == [[f"<{TO}>"], ["<other@passed.example>"]]


@pytest.mark.parametrize("kind", ["lost", "silent", "out of step"])
async def test_without_an_answer_to_the_dot_the_client_keeps_the_message(tmp_path: Path, kind: str) -> None:
    answers: dict[str, Answer] = {"lost": Act.RESET, "silent": Act.SILENCE, "out of step": b"354 go on\r\n"}
    sections: Sections = {"deliverer": {"final_timeout_s": 1}}
    server = ScriptedServer({"DOT": answers[kind]})
    async with serving(server), cutting(tmp_path, server, sections=sections) as core:
        code, reply = await sent(core)
        assert (code, reply.split()[0]) == (421, "4.4.2")
        assert len(server.messages) == 1  # it was not sent again
        await core.until_empty()
        assert on_disk(core) == []
        await core.until(
            lambda: '"delivery"' in (core.home / "log" / "mail.jsonl").read_text(), "the attempt in the log"
        )
        (tried,) = [line for line in core.log() if line["event"] == "delivery"]
        assert tried["status"] == "deferred"
        assert "may be sent more than once" in tried["reply"] or kind == "out of step"
        await core.until(lambda: "END-OF-MESSAGE" in str(core.log()), "the refusal in the log")
        terms = await balance(core)
        assert (terms["accepted"], terms["delivered"], terms["queued"]) == (0, 0, 0)


async def test_a_next_hop_that_is_slow_before_the_dot_costs_its_client_no_more_than_the_setting(tmp_path: Path) -> None:
    server = ScriptedServer({"RCPT": [Act.SILENCE, b"250 Ok\r\n"]})
    async with serving(server), cutting(tmp_path, server, wait_s=3.0) as core:
        code, reply = await sent(core)
        assert (code, reply.split()[2]) == (250, "queued")
        await core.until_removed(reply.split()[-1])
        assert len(server.messages) == 1
        assert "." not in server.sessions[0].verbs  # the first connection was closed before the dot


@pytest.mark.long
async def test_behind_a_message_that_was_late_others_are_stored_at_once_and_later_one_is_tried(tmp_path: Path) -> None:
    server = ScriptedServer({"RCPT": [Act.SILENCE, b"250 Ok\r\n"]})
    async with serving(server), cutting(tmp_path, server, wait_s=1.0) as core:
        for _ in range(2):
            code, reply = await sent(core)
            assert (code, reply.split()[2]) == (250, "queued")
            await core.until_removed(reply.split()[-1])
        counters = (await core.ask("state"))["counters"]
        assert (counters["cut_through_late"], counters["cut_through_slow"]) == (1, 1)

        async def is_used_again() -> bool:
            return (await sent(core))[1].split()[2] == "passed"

        await core.eventually(is_used_again, "cut-through")
        assert (await sent(core))[1].split()[2] == "passed"


async def test_a_next_hop_that_is_slow_after_the_dot_is_waited_for(tmp_path: Path) -> None:
    async with Lab(["slow(4):127.0.0.1:0"]) as lab:
        server = ScriptedServer()
        server.port = lab.hops[0].address[1]
        async with cutting(tmp_path, server, wait_s=3.0) as core:
            code, reply = await sent(core)
            assert (code, reply.split()[2]) == (250, "passed")
            assert len(lab.messages) == 1
            await core.until_empty()


async def test_mail_of_two_destinations_is_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, serving(ScriptedServer()) as other:
        sections: Sections = {"routes": {"other.example": f"smtp:[127.0.0.1]:{other.port}"}}
        async with cutting(tmp_path, server, sections=sections) as core:
            code, reply = await sent(core, TO, "to@other.example")
            assert (code, reply.split()[2]) == (250, "queued")
            await core.until_removed(reply.split()[-1])
            assert (len(server.messages), len(other.messages)) == (1, 1)
            code, reply = await sent(core, "to@other.example")
            assert (code, reply.split()[2]) == (250, "passed")


async def test_without_the_setting_mail_is_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, cut_through=False) as core:
        code, reply = await sent(core)
        assert (code, reply.split()[2]) == (250, "queued")
