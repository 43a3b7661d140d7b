"""Files of fallback next hops over a running core: another fallback for the next delivery, without a restart."""

from __future__ import annotations

import asyncio
import smtplib
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import Appliance, free_port
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, SENDER, RunningCore, Sections, recipients_of, route_to, running

IN_USE = "route_maps: 1 file in use, 2 routes"


async def until_logged(core: RunningCore, text: str, times: int = 1) -> None:
    async def logged() -> bool:
        return (core.home / "log" / "mail.log").read_text().count(text) == times

    await core.eventually(logged, f"{text!r} in the log, {times} times")


def hop(lab: Lab, number: int) -> str:
    return route_to(lab, number).removeprefix("smtp:")


def deliverers(core: RunningCore) -> dict[str, int]:
    return {name: pid for name, pid in core.processes().items() if name.startswith("deliverer")}


async def test_another_fallback_is_taken_without_losing_a_session_or_a_delivery(tmp_path: Path) -> None:
    file = tmp_path / "fallback"
    away = f"smtp:[127.0.0.1]:{free_port()}"
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        file.write_text(f"smtp {hop(lab, 0)}\n")
        sections: Sections = {
            "route_maps": {"fallback_relay": [str(file)]},
            "transports.smtp": {"fallback_relay": [hop(lab, 2)]},
            "deliverer": {"connection_idle_s": 60.0},  # connections to the fallback of before stay open
        }
        async with running(tmp_path, lab, sections, routes={"*": away}) as core:
            before = deliverers(core)
            await core.until_removed(await core.send("a@any.example"))
            assert recipients_of(lab.hops[0].messages) == ["a@any.example"]

            await lab.hops[0].set_behaviour("slow(4)")
            in_flight = await core.send("b@any.example")
            await core.until_in_flight()
            session = await asyncio.to_thread(smtplib.SMTP, "127.0.0.1", core.port, timeout=PATIENCE_S)
            session.ehlo("slow.example")
            for verb in (f"MAIL FROM:<{SENDER}>", "RCPT TO:<c@any.example>", "DATA"):
                assert session.docmd(verb)[0] in (250, 354)
            session.send(DATA)
            file.write_text(f"smtp {hop(lab, 1)}\n")
            await until_logged(core, IN_USE)
            session.send(b"and on\r\n.\r\n")
            code, reply = await asyncio.to_thread(session.getreply)
            assert code == 250, reply
            await asyncio.to_thread(session.quit)
            await core.until_removed(reply.decode().split()[-1], in_flight)
            assert recipients_of(lab.hops[0].messages) == ["a@any.example", "b@any.example"]
            assert recipients_of(lab.hops[1].messages) == ["c@any.example"]
            assert [line["status"] for line in core.log() if line["event"] == "delivery"] == ["sent"] * 3

            file.write_text("# the transport's own\n")
            await until_logged(core, IN_USE, 2)
            await core.until_removed(await core.send("d@any.example"))
            assert recipients_of(lab.hops[2].messages) == ["d@any.example"]

            file.write_text(f"{away} none\n")
            await until_logged(core, IN_USE, 3)
            alone = await core.send("e@any.example")
            await core.until_in(alone, "retry")
            assert (deliverers(core), recipients_of(lab.hops[2].messages)) == (before, ["d@any.example"])
            file.write_text(f"smtp none\n{away} {hop(lab, 2)}\n")
            await core.until_removed(alone)  # and not by an old connection to another one


async def test_a_bad_file_changes_nothing_until_it_is_corrected(tmp_path: Path) -> None:
    """law: routes-stay-good."""
    file = tmp_path / "fallback"
    away = f"smtp:[127.0.0.1]:{free_port()}"
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        file.write_text(f"smtp {hop(lab, 0)}\n")
        sections: Sections = {"route_maps": {"fallback_relay": [str(file)]}}
        async with running(tmp_path, lab, sections, routes={"*": away}) as core:
            fault = f"{file}:2: 'smpt' must be a transport, or a transport and a destination"
            file.write_text(f"smtp {hop(lab, 1)}\nsmpt {hop(lab, 1)}\n")
            await until_logged(core, "the routes read before stay in use")
            await until_logged(core, f"warning: route_maps: {fault}")
            await core.until_removed(await core.send("a@any.example"))
            assert recipients_of(lab.hops[0].messages) == ["a@any.example"]
            (problem,) = (await Appliance.ask(core, "status"))["problems"]
            assert problem.startswith(f"[route_maps] {fault}")
            code, out, err = await core._run("check-config")
            assert (code, fault in out + err) == (2, True)
            # A manager that is started now does not know where mail may go: it waits, as with the other files.
            await core.kill("manager")
            await until_logged(core, "; mail waits")
            waiting = await core.send("b@any.example")
            await until_logged(core, "status=deferred (the files of [route_maps] cannot be used)")
            file.write_text(f"smtp {hop(lab, 1)}\n")
            await core.until_removed(waiting)
            assert recipients_of(lab.hops[1].messages) == ["b@any.example"]
            file.write_text(f"smtp [127.0.0.1]:{core.port}\n")
            await until_logged(
                core, f"leads to an address that it listens on, port {core.port}; the routes read before"
            )
            await core.until_removed(await core.send("c@any.example"))
            assert recipients_of(lab.hops[1].messages) == ["b@any.example", "c@any.example"]
