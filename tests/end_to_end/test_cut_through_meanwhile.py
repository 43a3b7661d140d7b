"""Cut-through while something else happens: questions, changes of settings, other processes, and messages of every kind."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.load import load
from mailcore.control.client import ControlError
from mailcore.metrics.asking import Asking
from tests.deliverer.scripted_server import Act, ScriptedServer, serving
from tests.end_to_end.test_cut_through import DATA, TO, balance, cutting, sent
from tests.end_to_end.test_cut_through_decided import destination_of, is_passed_on, is_stored
from tests.eventually import eventually
from tests.running.running_core import RunningCore, Sections


async def busy(core: RunningCore) -> tuple[int, int, int, int]:
    """Entries with deliverers, in the scheduler, of the transport, and messages of the scheduler."""
    state = await core.ask("state")
    scheduler = state["scheduler"]
    return (
        sum(link["in_flight"] for link in state["deliverers"]),
        scheduler["entries_in_flight"],
        scheduler["transports"]["smtp"]["busy"],
        scheduler["active_messages"],
    )


def answer_now(server: ScriptedServer, reply: bytes = b"250 2.0.0 late\r\n") -> None:
    writer = server.sessions[-1].writer
    assert writer is not None
    writer.write(reply)


async def test_questions_about_it_while_its_client_waits_have_an_answer(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": Act.SILENCE})) as server, cutting(tmp_path, server) as core:
        waiting = asyncio.create_task(sent(core, TO, "and@passed.example"))
        await eventually(lambda: len(server.messages) == 1, "the message")
        queue_id = server.messages[0].data.partition(b" id ")[2].split()[0].decode().rstrip(";")
        assert await busy(core) == (1, 1, 1, 1)
        for question, arguments in (
            ("explain", {"queue_id": queue_id}),
            ("show", {"queue_id": queue_id}),
            ("history", {"queue_id": queue_id}),
            ("search", {"queue_id": queue_id}),
            ("list", {"cursor": "", "limit": 10, "filter": {}}),
            ("destinations", {}),
            ("destination", {"destination": destination_of(server)}),
            ("size", {}),
            ("retry", {"queue_ids": [queue_id]}),
            ("hold", {"queue_ids": [queue_id]}),
            ("delete", {"queue_ids": [queue_id]}),
        ):
            answer: Any = None
            try:
                answer = await core.ask(question, **arguments)
            except ControlError as error:
                answer = {"error": str(error)}
            assert not (isinstance(answer, dict) and answer.get("changed")), (question, answer)
            assert "internal" not in str(answer), (question, answer)
        answer_now(server)
        assert (await waiting)[1].split()[2] == "passed"
        await core.until_empty()
        assert await busy(core) == (0, 0, 0, 0)


CHANGES: list[tuple[str, str, Any]] = [
    ("", "message_active_limit", 10),
    ("smtp", "process_limit", 1),
    ("smtp", "destination_concurrency_limit", 1),
    ("smtp", "destination_recipient_limit", 1),
    ("smtp", "destination_rate_delay", 5),
]


@pytest.mark.parametrize(("scope", "parameter", "value"), CHANGES, ids=[each[1] for each in CHANGES])
async def test_what_is_set_while_its_client_waits_leaks_nothing(
    tmp_path: Path, scope: str, parameter: str, value: Any
) -> None:
    async with (
        serving(ScriptedServer({"DOT": [Act.SILENCE, b"250 Ok\r\n"]})) as server,
        cutting(tmp_path, server) as core,
    ):
        waiting = asyncio.create_task(sent(core, TO, "and@passed.example"))
        await eventually(lambda: len(server.messages) == 1, "the message")
        await core.ask("set", scope=scope, parameter=parameter, value=value)
        answer_now(server)
        assert (await waiting)[1].split()[2] == "passed"
        assert await busy(core) == (0, 0, 0, 0)
        await core.ask("set", scope=scope, parameter=parameter, value=None)

        async def passed() -> bool:  # the rest of a rate delay that has begun lasts
            return (await sent(core))[1].split()[2] == "passed"

        await core.eventually(passed, "a message that is passed on")
        await core.until_empty()
        assert await busy(core) == (0, 0, 0, 0)
        await balance(core)


async def test_suspended_while_its_client_waits_it_ends_and_the_next_ones_are_stored(tmp_path: Path) -> None:
    async with (
        serving(ScriptedServer({"DOT": [Act.SILENCE, b"250 Ok\r\n"]})) as server,
        cutting(tmp_path, server) as core,
    ):
        waiting = asyncio.create_task(sent(core))
        await eventually(lambda: len(server.messages) == 1, "the message")
        await core.ask("suspend", destination=destination_of(server))
        queue_id = await is_stored(core)
        answer_now(server)
        assert (await waiting)[1].split()[2] == "passed"
        assert (await busy(core))[0] == 0
        await core.ask("resume", destination=destination_of(server))
        await core.until_removed(queue_id)
        assert len(server.messages) == 2


def defer_all(server: ScriptedServer) -> None:
    """Answers each recipient that has no answer yet: what was stored is tried without an end of its time."""
    for session in server.sessions:
        if session.writer is not None and not session.ended.is_set() and session.verbs[-1:] == ["RCPT"]:
            session.lines.append("answered")
            session.writer.write(b"450 4.2.0 later\r\n")


async def test_a_hundred_that_are_late_leave_no_slot_and_no_connection_behind(tmp_path: Path) -> None:
    silent = ScriptedServer({"RCPT": Act.SILENCE}, keywords=())
    sections: Sections = {
        "queue": {"retry_ladder_s": [600]},
        "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
    }
    narrow = {"destination_concurrency_limit": 5, "process_limit": 5}
    async with serving(silent), cutting(tmp_path, silent, wait_s=0.1, sections=sections, **narrow) as core:
        for _ in range(10):
            await asyncio.gather(*(is_stored(core) for _ in range(10)))
            defer_all(silent)

        async def idle() -> bool:
            defer_all(silent)
            return await busy(core) == (0, 0, 0, 0)

        await core.eventually(idle, "an idle manager")
        assert silent.messages == []
        assert (await balance(core))["queued"] == 100
        counters = (await core.ask("state"))["counters"]
        assert counters["cut_through_failed"] >= 5
        await eventually(
            lambda: all(session.ended.is_set() for session in silent.sessions), "the end of all connections"
        )


class Client:
    """A client that writes bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.file = self.socket.makefile("rb")

    def reply(self) -> bytes:
        while (line := self.file.readline())[3:4] == b"-":
            pass
        return line

    def say(self, *lines: bytes) -> bytes:
        """Sends each line and reads its reply; the last one."""
        reply = b""
        for line in lines:
            self.socket.sendall(line)
            reply = self.reply()
        return reply

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def begun(port: int) -> Client:
    client = Client(port)
    client.reply()
    client.say(b"EHLO client\r\n")
    return client


MAIL = (b"MAIL FROM:<a@b.example>\r\n", b"RCPT TO:<to@passed.example>\r\n")


async def test_a_message_in_chunks_is_passed_on(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server) as core:

        def talk() -> list[bytes]:
            client = begun(core.port)
            replies = [client.say(*MAIL, b"BDAT 20\r\n" + b"Subject: one\r\n\r\n.ab\r")]
            replies.append(client.say(b"BDAT 1 LAST\r\n\n"))
            replies.append(client.say(*MAIL, b"BDAT 0 LAST\r\n"))
            replies.append(client.say(b"QUIT\r\n"))
            client.close()
            return replies

        first, second, third, fourth = await asyncio.to_thread(talk)
        assert first.startswith(b"250 2.0.0 Ok: 20 octets")
        assert second.startswith(b"250 2.0.0 Ok: passed on as ")
        assert third.startswith(b"250 2.0.0 Ok: passed on as ")
        assert fourth.startswith(b"221 ")
        assert server.messages[0].data.endswith(b"Subject: one\r\n\r\n..ab\r\n")


async def test_commands_that_are_sent_behind_the_dot_wait_for_its_answer(tmp_path: Path) -> None:
    async with (
        serving(ScriptedServer({"DOT": [Act.SILENCE, b"250 Ok\r\n"]})) as server,
        cutting(tmp_path, server) as core,
    ):

        def talk() -> bytes:
            client = begun(core.port)
            client.say(*MAIL, b"DATA\r\n")
            again = b"".join(MAIL) + b"DATA\r\n"
            client.socket.sendall(DATA + b".\r\n" + again)
            replies = client.reply()
            for _ in range(3):
                replies += client.reply()
            client.socket.sendall(DATA + b".\r\nQUIT\r\n")
            replies += client.reply() + client.reply()
            client.close()
            return replies

        talking = asyncio.create_task(asyncio.to_thread(talk))
        await eventually(lambda: len(server.messages) == 1, "the first message")
        answer_now(server)
        replies = (await talking).splitlines()
        assert [reply[:3] for reply in replies] == [b"250", b"250", b"250", b"354", b"250", b"221"]
        assert len(server.messages) == 2


async def test_behind_a_421_its_session_is_over(tmp_path: Path) -> None:
    async with serving(ScriptedServer({"DOT": Act.RESET})) as server, cutting(tmp_path, server) as core:

        def talk() -> tuple[bytes, bytes]:
            client = begun(core.port)
            client.say(*MAIL, b"DATA\r\n")
            client.socket.sendall(DATA + b".\r\n" + b"".join(MAIL) + b"DATA\r\n" + DATA + b".\r\n")
            replies = client.reply(), client.file.read()
            client.close()
            return replies

        reply, rest = await asyncio.to_thread(talk)
        assert reply.startswith(b"421 4.4.2 ")
        assert rest == b""
        assert len(server.messages) == 1


async def test_so_it_is_for_a_client_that_made_many_mistakes(tmp_path: Path) -> None:
    """Its replies come late, and this one is the last."""
    sections: Sections = {
        "clients": {"soft_error_limit": 1, "error_sleep_time_s": 0.2, "useless_command_limit": 1},
        "receiver": {"error_limit": 50},
    }
    server = ScriptedServer({"DOT": Act.RESET})
    async with serving(server), cutting(tmp_path, server, sections=sections) as core:

        def talk() -> tuple[bytes, bytes]:
            client = begun(core.port)
            client.say(b"WRONG\r\n", b"WRONG\r\n", b"WRONG\r\n")
            client.say(*MAIL, b"BDAT 0\r\n", b"BDAT 0\r\n", b"RSET\r\n", *MAIL, b"DATA\r\n")
            client.socket.sendall(DATA + b".\r\n")
            first = client.reply()
            client.socket.sendall(b"NOOP\r\n")
            rest = client.file.read()
            client.close()
            return first, rest

        reply, rest = await asyncio.to_thread(talk)
        assert reply.startswith(b"421 4.4.2 ")
        assert rest == b""
        await core.until(lambda: "END-OF-MESSAGE" in str(core.log()), "the refusal in the log")


async def test_of_several_receivers_each_hears_of_its_own(tmp_path: Path) -> None:
    server = ScriptedServer({"DOT": Act.SILENCE})
    sections: Sections = {"receiver": {"processes": 3}, "deliverer": {"processes": 2}}
    wide = {"initial_destination_concurrency": 50, "destination_concurrency_limit": 50}
    async with serving(server), cutting(tmp_path, server, sections=sections, **wide) as core:
        waiting = [asyncio.create_task(sent(core, f"r{number}@passed.example")) for number in range(5)]
        await eventually(lambda: len(server.messages) == 5, "all messages")
        for session in server.sessions:
            assert session.writer is not None
            to = next(line for line in session.lines if line.startswith("RCPT"))[8:].strip("<>").partition("@")[0]
            session.writer.write(b"250 2.0.0 for %s\r\n" % to.encode())
        replies = await asyncio.gather(*waiting)
        assert [reply.rpartition(" ")[2] for _, reply in replies] == [f"r{number}" for number in range(5)]
        assert await busy(core) == (0, 0, 0, 0)
        assert (await balance(core))["delivered"] == 5


async def test_a_copy_for_the_archive_goes_with_it_or_both_are_stored(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as server, serving(ScriptedServer()) as archive:
        sections: Sections = {
            "routes": {"archive.example": destination_of(archive)},
            "rewriting": {"always_bcc": "all@archive.example"},
        }
        async with cutting(tmp_path, server, sections=sections) as core:
            queue_id = await is_stored(core)
            await core.until_removed(queue_id)
            assert (len(server.messages), len(archive.messages)) == (1, 1)


@pytest.mark.parametrize("mail", [("SMTPUTF8", "BODY=8BITMIME"), ("BODY=8BITMIME",)])
async def test_what_the_next_hop_cannot_take_is_as_without_it(tmp_path: Path, mail: tuple[str, ...]) -> None:
    """Converted to 7 bits and passed on, or returned by the ordinary way."""
    data = DATA + "ä\r\n".encode()
    async with serving(ScriptedServer(keywords=("PIPELINING",))) as server, cutting(tmp_path, server) as core:
        if len(mail) == 1:
            await is_passed_on(core, data=data, mail=mail)
            assert server.messages[0].data.isascii()
            return
        code, reply = await sent(core, "tö@passed.example", data=data, mail=mail)
        assert (code, reply.split()[2]) == (250, "queued")
        await core.until_removed(reply.split()[-1])
        await core.until_empty()
        assert [message.sender.split()[0] for message in server.messages] == ["<>"]


async def test_the_metrics_say_what_became_of_each_offer_and_why(tmp_path: Path) -> None:
    server = ScriptedServer({"DOT": [b"250 Ok\r\n", Act.RESET, b"451 4.3.0 no\r\n", b"250 Ok\r\n"]})
    slow = ScriptedServer({"RCPT": Act.SILENCE}, keywords=())
    async with serving(server), serving(slow):
        routes = {"two.example": "smtp:[127.0.0.1]:1", "slow.example": destination_of(slow)}
        sections: Sections = {
            "routes": routes,
            "scheduler": {"minimal_backoff_time": 600.0, "maximal_backoff_time": 600.0},
        }
        async with cutting(tmp_path, server, wait_s=2.0, sections=sections) as core:

            async def metrics() -> dict[str, int]:
                text = await asyncio.to_thread(Asking(load(core.config)).text)
                lines = [line.split(" ") for line in text.splitlines() if line.startswith("waypost_cut_through")]
                return {name.partition("=")[2].strip('"}'): int(value) for name, value in lines}

            zeros = dict.fromkeys(
                ("passed_on", "stored", "uncertain", "route", "room", "turn", "slow", "late", "refused"), 0
            )  # fmt: skip
            assert await metrics() == zeros
            await is_passed_on(core)
            assert (await sent(core))[0] == 421
            refused = await is_stored(core)
            await core.until_removed(refused)
            await is_stored(core, TO, "to@two.example")
            await is_stored(core, "to@slow.example")
            await is_stored(core, "to@slow.example")
            await core.ask("suspend", destination=destination_of(server))
            await is_stored(core)
            assert await metrics() == {
                **zeros, "passed_on": 1, "uncertain": 1, "stored": 5, "refused": 1, "route": 1, "late": 1, "slow": 1,
                "turn": 1,
            }  # fmt: skip


async def test_mail_with_a_deadline_is_stored(tmp_path: Path) -> None:
    sections: Sections = {"esmtp": {"deliver_by_min_s": 10}}
    async with serving(ScriptedServer()) as server, cutting(tmp_path, server, sections=sections) as core:
        for asked in ("BY=600;R", "BY=600;N"):
            await is_stored(core, mail=(asked,))
        await is_passed_on(core)
