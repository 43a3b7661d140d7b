"""A changed configuration file comes into force while mail flows: no client is refused, no message is lost or sent twice.

law: reload-refuses-no-client, law: reload-is-checked-first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import smtplib
import socket
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import COMMAND, free_port
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, SENDER, RunningCore, recipients_of, route_to, running

PERSISTENT, CONNECTING = 3, 3  # clients of each kind


class Clients:
    """Clients that send without a pause: some over one connection, some over a new one for each message."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self.acknowledged: list[str] = []
        self.told_to_come_back = 0  # 421 between two messages
        self.wrong: list[str] = []
        self._threads = [
            threading.Thread(target=self._send, args=(keep,)) for keep in [True] * PERSISTENT + [False] * CONNECTING
        ]

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(PATIENCE_S)

    def _next(self) -> str:
        with self._lock:
            self._number += 1
            return f"m{self._number}"

    def _send(self, keep: bool) -> None:
        client: smtplib.SMTP | None = None
        while not self._stop.is_set():
            name = self._next()
            data = f"X-Ledger-Id: {name}\r\nSubject: {name}\r\n\r\nHello.\r\n".encode()
            try:
                if client is None:
                    client = smtplib.SMTP("127.0.0.1", self._port, timeout=PATIENCE_S)
                    client.ehlo("client.example")
                code, reply = client.mail(SENDER)
                if code == 421:
                    self.told_to_come_back += 1
                    client.close()
                    client = None
                    continue
                assert code == 250, reply
                code, reply = client.rcpt(f"{name}@any.example")
                assert code == 250, reply
                code, reply = client.data(data)
                assert code == 250, reply
                self.acknowledged.append(name)
                if not keep:
                    client.quit()
                    client = None
            except smtplib.SMTPServerDisconnected:
                # A 421 that came between two messages is read with the next command; some versions of smtplib say so this way.
                self.told_to_come_back += 1
                client = None
            except (AssertionError, OSError, smtplib.SMTPException) as error:
                self.wrong.append(f"{name}: {error!r}")
                client = None
        if client is not None:
            with contextlib.suppress(OSError, smtplib.SMTPException):
                client.quit()


def edit(core: RunningCore, *lines: tuple[str, str]) -> None:
    """Replaces text of the file, or adds it at the end where nothing is to be replaced."""
    text = core.config.read_text()
    for old, new in lines:
        assert not old or old in text
        text = text.replace(old, new) if old else f"{text}{new}\n"
    core.config.write_text(text)


def reload(core: RunningCore, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMAND), "reload", "--config", str(core.config), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


async def reloaded(core: RunningCore) -> dict[str, Any]:
    done = await asyncio.to_thread(reload, core, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["changed"], "the test changes nothing"
    return document


async def test_changes_under_load_refuse_nobody_and_lose_nothing(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        first, second = route_to(lab, 0), route_to(lab, 1)
        async with running(tmp_path, lab, {"receiver": {"processes": 2}}, routes={"*": first}) as core:
            with Clients(core.port) as clients:
                took = []
                for number, change in enumerate(
                    (
                        ("", "[relay]\ndomains = ['mine.example']"),
                        (f'"*" = "{first}"', f'"*" = "{second}"'),
                        ("", "[transports.smtp]\ndestination_recipient_limit = 7"),
                        ("", "[esmtp]\npriority_max = 5"),
                        ("processes = 2", "processes = 3"),
                        ("processes = 3", "processes = 1"),
                        ("", "[bounce]\nbounce_size_limit = 40000"),
                        ("", "[tls]\nsts_timeout_s = 7.0"),
                    )
                ):
                    edit(core, change)
                    document = await reloaded(core)
                    result = document["result"]
                    assert (result["refused"], result["killed"], result["not_begun"]) == ([], [], []), number
                    took.append(result["ended_at"] - result["began_at"])
                    await asyncio.sleep(0.3)
            assert clients.wrong == []
            await core.control.close()  # it was of a process that is gone
            await core.until_empty()
            arrived = Counter(arrival.id for arrival in lab.messages)
            assert set(clients.acknowledged) - set(arrived) == set(), "acknowledged and not delivered"
            assert [name for name, times in arrived.items() if times > 1] == [], "delivered twice"
            assert len(clients.acknowledged) > 100
            assert lab.hops[1].messages, "the route that came with a reload"
            print(f"{len(clients.acknowledged)} messages, {clients.told_to_come_back} of 421, reloads took {took}")


def session(core: RunningCore, port: int = 0) -> smtplib.SMTP:
    client = smtplib.SMTP("127.0.0.1", port or core.port, timeout=PATIENCE_S)
    client.ehlo("client.example")
    return client


def begin(client: smtplib.SMTP, recipient: str) -> None:
    """Up to the data, of which the first half is sent."""
    for verb in (f"MAIL FROM:<{SENDER}>", f"RCPT TO:<{recipient}>", "DATA"):
        assert client.docmd(verb)[0] in (250, 354)
    client.send(DATA)


def end(client: smtplib.SMTP, more: bytes = b"") -> tuple[int, bytes]:
    client.send(b"the other half\r\n.\r\n" + more)
    return client.getreply()


async def test_what_has_begun_may_end_and_who_waits_is_told_to_come_back(tmp_path: Path) -> None:
    async with Lab(["slow(3):127.0.0.1:0"]) as lab, running(tmp_path, lab, {"supervisor": {"reload_s": 20.0}}) as core:
        in_flight = await core.send("flies@any.example")
        await core.until_in_flight()
        idle, busy = await asyncio.to_thread(session, core), await asyncio.to_thread(session, core)
        await asyncio.to_thread(begin, busy, "half@any.example")
        edit(core, ("[receiver]\n", '[receiver]\nhostname = "mx.example"\n'))  # all but the exporter start again
        reloading = asyncio.create_task(reloaded(core))
        code, reply = await asyncio.to_thread(idle.getreply)
        assert (code, reply[:5]) == (421, b"4.3.2"), reply
        late = asyncio.create_task(asyncio.to_thread(session, core))  # it connects before the next process is there
        await asyncio.sleep(0.3)
        assert not reloading.done()
        code, reply = await asyncio.to_thread(end, busy, f"MAIL FROM:<{SENDER}>\r\n".encode())
        assert code == 250, reply
        code, reply = await asyncio.to_thread(busy.getreply)
        assert code == 421, "no other transaction begins here"
        result = (await reloading)["result"]
        assert result["killed"] == []
        (await late).quit()
        idle.close()
        busy.close()
        await core.control.close()
        await core.until_removed(in_flight)
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == ["flies@any.example", "half@any.example"]
        assert lab.hops[0].counters.connections == 2, "no delivery was broken off and repeated"


async def test_who_asks_at_once_behind_a_reload_has_an_answer_of_the_manager(tmp_path: Path) -> None:
    """Before, the control process had sometimes not found the new manager, which was said not to be running."""
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        edit(core, ("[receiver]\n", '[receiver]\nhostname = "mx0.example"\n'))
        for number in range(10):
            restarted = (await reloaded(core))["result"]["restarted"]
            assert {"manager", "control"} <= set(restarted)
            await core.control.close()  # it was of a process that is gone
            assert (await core.ask("size"))["messages"] == 0, number
            edit(core, (f"mx{number}.example", f"mx{number + 1}.example"))


async def test_what_takes_too_long_is_broken_off_and_its_client_keeps_the_message(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {"supervisor": {"reload_s": 0.3}}) as core:
        client = await asyncio.to_thread(session, core)
        await asyncio.to_thread(begin, client, "half@any.example")
        edit(core, ("", "[relay]\ndomains = ['mine.example']"))
        result = (await reloaded(core))["result"]
        assert result["killed"] in (["receiver.0"], ["receiver.1"])
        with pytest.raises((smtplib.SMTPServerDisconnected, OSError)):
            await asyncio.to_thread(end, client)
        client.close()
        await core.control.close()
        await core.until_removed(await core.send("whole@any.example"))
        assert recipients_of(lab.messages) == ["whole@any.example"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('[queue]\ninline_limit = "much"', "inline_limit"),
        ("[relay]\ndomains = ['mine.example']\nhome = 7", "home"),
        ("[export]\nenabled = true", "[export] enabled"),
    ],
)
async def test_a_file_with_a_fault_changes_nothing(tmp_path: Path, change: str, words: str) -> None:
    """Asked for by the command or by the signal alone, and after a kill of a process."""
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        before = core.processes()
        section = change.splitlines()[0] + "\n"
        text = core.config.read_text()
        text = text.replace("enabled = false\n", "") if "[export]" in change else text
        core.config.write_text(text.replace(section, change + "\n") if section in text else text + change + "\n")
        done = await asyncio.to_thread(reload, core)
        assert done.returncode == 2
        assert words in done.stdout + done.stderr
        os.kill(before["supervisor"], signal.SIGUSR1)

        async def refused() -> bool:
            return any(line["event"] == "reload_refused" for line in core.log())

        await core.eventually(refused, "the refusal in the log")
        assert words in (core.home / "run" / "reload.json").read_text()
        await core.kill("receiver.0")
        after = core.processes()
        assert {name: pid for name, pid in after.items() if name != "receiver.0"} == {
            name: pid for name, pid in before.items() if name != "receiver.0"
        }
        await core.until_removed(await core.send("one@any.example"))


async def test_an_address_comes_and_goes(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        other = free_port()
        both = f'listen = ["127.0.0.1:{core.port}", "127.0.0.1:{other}"]'
        one = f'listen = ["127.0.0.1:{core.port}"]'
        edit(core, (one, both))
        await reloaded(core)
        (await asyncio.to_thread(session, core, other)).quit()
        edit(core, (both, one))
        await reloaded(core)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(session, core, other)
        with socket.create_server(("127.0.0.1", other)):
            edit(core, (one, both))
            done = await asyncio.to_thread(reload, core)
            assert done.returncode == 2, "another program has the port"
            assert f"127.0.0.1:{other} is in use by another process" in done.stderr
        (await asyncio.to_thread(session, core)).quit()


async def test_a_dry_run_shows_what_would_restart_and_changes_nothing(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        before = core.processes()
        assert "nothing differs" in (await asyncio.to_thread(reload, core)).stdout
        edit(core, ("", "[relay]\ndomains = ['mine.example', 'ours.example']"))
        done = await asyncio.to_thread(reload, core, "--dry-run")
        assert done.stdout.splitlines() == [
            "[relay] domains: empty -> mine.example, ours.example",
            "restarts: receivers, manager, control",
        ]
        assert (core.processes(), done.returncode) == (before, 0)
        edit(core, ("", "[portal]\naudit_days = 80"))
        assert (
            "[portal]: the portal's processes read this" in (await asyncio.to_thread(reload, core, "--dry-run")).stderr
        )
    assert (await asyncio.to_thread(reload, core)).returncode == 3, "it is not running"


async def test_many_reloads_and_kills_at_once_end_in_what_the_file_says(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {"receiver": {"processes": 2}}) as core:
        with Clients(core.port) as clients:
            for number in range(12):
                edit(
                    core,
                    ("", "[relay]\ndomains = ['d0.example']") if not number else (f"d{number - 1}.", f"d{number}."),
                )
                processes = core.processes()
                os.kill(processes["supervisor"], signal.SIGUSR1)
                await asyncio.sleep(0.02 * number)
                victim = ("manager", "receiver.0", "deliverer.0", "control")[number % 4]
                with contextlib.suppress(ProcessLookupError, KeyError):
                    os.kill(core.processes()[victim], signal.SIGKILL)
            await reloaded_or_same(core)
        settings = json.loads((core.home / "run" / "settings.json").read_text())
        assert settings["relay"]["domains"] == ["d11.example"]
        await core.control.close()
        await core.ready()
        await core.until_empty()
        arrived = {arrival.id for arrival in lab.messages}
        assert set(clients.acknowledged) - arrived == set()


async def reloaded_or_same(core: RunningCore) -> None:
    """Until the last reload has ended."""

    async def same() -> bool:
        done = await asyncio.to_thread(reload, core, "--json")
        return done.returncode == 0 and not json.loads(done.stdout)["changed"]

    await core.eventually(same, "the file in force")


async def test_a_supervisor_that_is_killed_in_a_reload_starts_with_the_file(tmp_path: Path) -> None:
    async with Lab(["slow(2):127.0.0.1:0"]) as lab, running(tmp_path, lab, {"supervisor": {"reload_s": 10.0}}) as core:
        queue_id = await core.send("flies@any.example")
        await core.until_in_flight()
        edit(core, ("", "[relay]\ndomains = ['mine.example']"))
        os.kill(core.processes()["supervisor"], signal.SIGUSR1)
        await asyncio.sleep(0.3)
        await core.control.close()
        await core.again()
        settings = json.loads((core.home / "run" / "settings.json").read_text())
        assert settings["relay"]["domains"] == ["mine.example"]
        await core.until_removed(queue_id)
