"""Files of routes over a running core: another route for new mail without a lost session, and nothing by a bad file."""

from __future__ import annotations

import asyncio
import itertools
import smtplib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, SENDER, RunningCore, Sections, recipients_of, route_to, running

FLOWS = 4  # clients that send all the time


def logged(core: RunningCore, text: str) -> bool:
    return text in (core.home / "log" / "mail.log").read_text()


async def _so(true: bool) -> bool:
    return true


class Flow:
    """Sends one message after the other in one session, in a thread."""

    def __init__(self, port: int, number: int) -> None:
        self.replies: list[tuple[int, bytes]] = []
        self._stopping = False
        self._task = asyncio.create_task(asyncio.to_thread(self._send, port, number))

    def _send(self, port: int, number: int) -> None:
        with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
            client.ehlo("client.example")
            for count in itertools.count():
                self.replies += [
                    client.mail("other@other.example"),
                    client.rcpt(f"{number}.{count}@any.example"),
                    client.data(DATA),
                ]
                if self._stopping:
                    return

    async def stop(self) -> None:
        self._stopping = True
        await self._task


@asynccontextmanager
async def flowing(core: RunningCore) -> AsyncIterator[list[Flow]]:
    flows = [Flow(core.port, number) for number in range(FLOWS)]
    try:
        yield flows
    finally:
        for flow in flows:
            await flow.stop()


@asynccontextmanager
async def session(core: RunningCore) -> AsyncIterator[smtplib.SMTP]:
    made = await asyncio.to_thread(smtplib.SMTP, "127.0.0.1", core.port, timeout=PATIENCE_S)
    try:
        yield made
    finally:
        made.close()


async def test_a_new_route_is_taken_under_load_and_no_session_is_lost(tmp_path: Path) -> None:
    senders = tmp_path / "senders"
    senders.write_text("# none yet\n")
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        sections: Sections = {"route_maps": {"sender_routes": [str(senders)]}}
        async with running(tmp_path, lab, sections) as core, flowing(core) as flows, session(core) as open_session:
            before = await core.send("before@any.example")
            await core.until_removed(before)
            open_session.ehlo("slow.example")
            for verb in (f"MAIL FROM:<{SENDER}>", "RCPT TO:<slow@any.example>", "DATA"):
                assert open_session.docmd(verb)[0] in (250, 354)
            open_session.send(DATA)
            senders.write_text(f"sender.example  {route_to(lab, 1, 'relay')}\n")
            await core.eventually(lambda: _so(logged(core, "route_maps: 1 file in use")), "the file in use")
            open_session.send(b"and on\r\n.\r\n")
            code, reply = await asyncio.to_thread(open_session.getreply)
            assert code == 250, reply
            slow = reply.decode().split()[-1]
            after = await core.send("after@any.example")
            await core.until_removed(slow)
            await core.until_removed(after)

            async def resolved() -> Any:  # by control, which looks at the file when it does
                where = await core.ask("resolve", address="a@any.example", sender=SENDER)
                return where if where["destination"] == route_to(lab, 1, "relay") else None

            where = await core.eventually(resolved, "control to use the file")
            assert (where["matched"], where["written"]) == ("sender.example", f"{senders}:1")
            for flow in flows:
                await flow.stop()
                assert len(flow.replies) > 3
                assert {code for code, _ in flow.replies} == {250}
            assert recipients_of(lab.hops[1].messages) == ["after@any.example", "slow@any.example"]
            assert "before@any.example" in recipients_of(lab.hops[0].messages)
            await asyncio.to_thread(open_session.quit)


async def test_a_bad_file_changes_nothing_until_it_is_corrected(tmp_path: Path) -> None:
    transport = tmp_path / "transport"
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        transport.write_text(f"own.example {route_to(lab, 1)}\n")
        sections: Sections = {"route_maps": {"routes": [str(transport)]}}
        async with running(tmp_path, lab, sections) as core:
            transport.write_text(f"own.example {route_to(lab, 0)}\nother.example nowhere\n")
            await core.eventually(
                lambda: _so(logged(core, "the routes read before stay in use")), "the fault in the log"
            )
            assert logged(core, f"{transport}:2: 'other.example' must name a transport")
            await core.until_removed(await core.send("a@own.example"))
            assert recipients_of(lab.hops[1].messages) == ["a@own.example"]
            (problem,) = (await Appliance.ask(core, "status"))["problems"]
            assert problem.startswith(f"[route_maps] {transport}:2: ")
            # A manager that is started now has no routes: mail waits, and goes as soon as the file is good.
            await core.kill("manager")
            await core.eventually(lambda: _so(logged(core, "; mail waits")), "the fault in the log of the new manager")
            waiting = await core.send("b@own.example")
            why = "the files of [route_maps] cannot be used"
            await core.eventually(lambda: _so(logged(core, f"status=deferred ({why})")), "a recipient that waits")
            transport.write_text(f"own.example {route_to(lab, 0)}\n")
            await core.until_removed(waiting)
            assert recipients_of(lab.hops[0].messages) == ["b@own.example"]


async def test_started_with_a_bad_file_it_takes_mail_which_waits(tmp_path: Path) -> None:
    """A power failure in the night, and a file that a program has written wrong: clients need not try again."""
    transport = tmp_path / "transport"
    transport.write_text("own.example nowhere\n")
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, {"route_maps": {"routes": [str(transport)]}})
        code, out, err = await core._run("check-config")
        assert code == 2
        fault = f"{transport}:1: 'own.example' must name a transport that is defined"
        assert fault in err + out
        await core.start()
        try:
            await core.eventually(lambda: _so(logged(core, fault)), "the fault in the log")
            waiting = await core.send("b@own.example")
            await core.eventually(lambda: _so(logged(core, "status=deferred")), "a recipient that waits")
            transport.write_text(f"own.example {route_to(lab, 0)}\n")
            await core.until_removed(waiting)
            assert recipients_of(lab.messages) == ["b@own.example"]
        finally:
            await core.control.close()
            core.stop()


async def test_a_file_that_could_not_be_read_is_read_when_it_can_be(tmp_path: Path) -> None:
    """After a chmod, say, which changes neither size nor time of the content."""
    routes = tmp_path / "routes"
    link = tmp_path / "link"
    routes.write_text("own.example discard:\n")
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        sections: Sections = {"route_maps": {"routes": [str(link)]}}  # for root every file is readable
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, sections)
        link.symlink_to(tmp_path / "missing" / "routes")
        await core.start()
        try:
            await core.eventually(lambda: _so(logged(core, "; mail waits")), "the fault")
            (tmp_path / "missing").symlink_to(tmp_path)
            await core.eventually(lambda: _so(logged(core, "route_maps: 1 file in use")), "the file in use")
        finally:
            await core.control.close()
            core.stop()
