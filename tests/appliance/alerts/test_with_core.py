"""``manage.py watch`` beside a real core: the core is killed, mail and webhook say so, and say that it is back."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from mailcore.lab.lab import Lab
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, route_to, running
from tests.test_tidy import ROOT


class Hook:
    """A web server that keeps the notices it gets."""

    def __init__(self) -> None:
        self.got: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                for each in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["notices"]:
                    hook.got.append(f"{each['kind']} {each['alert']['cause']}")
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)


@contextmanager
def hooked() -> Iterator[Hook]:
    hook = Hook()
    threading.Thread(target=hook.server.serve_forever, daemon=True).start()
    try:
        yield hook
    finally:
        hook.server.shutdown()
        hook.server.server_close()


def environment(core: RunningCore) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return own | {
        "WAYPOST_CONFIG": str(core.directory / "waypost.toml"),
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
    }


def watch(core: RunningCore) -> subprocess.Popen[bytes]:
    command = [sys.executable, "manage.py", "watch", "--with-parent", str(os.getpid())]
    return subprocess.Popen(command, cwd=ROOT, env=environment(core))


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def count_of(core: RunningCore, rows: str) -> int:
    with sqlite3.connect(core.home / "portal" / "portal.sqlite3") as connection:
        return int(connection.execute(f"SELECT count(*) FROM {rows}").fetchone()[0])


def all_noted(core: RunningCore) -> bool:
    """Whether what was sent is noted as sent. A watch that is killed before that sends it again, and may."""
    return count_of(core, "alerts_notice WHERE sent_at IS NULL") == 0


def subjects(catcher: Catcher) -> list[str]:
    return [
        str(email.message_from_bytes(data, policy=email.policy.default)["Subject"]).partition(": ")[2]
        for _, _, data in catcher.caught
    ]


async def test_the_mail_about_a_core_that_is_stopped_arrives_and_so_does_its_end(tmp_path: Path) -> None:
    with hooked() as hook:
        async with Lab(["accept:127.0.0.1:0"]) as lab, Catcher() as catcher:
            server = catcher.route.partition(":")[2].replace("[", "").replace("]", "")
            alerts = {
                "recipients": ["on-call@example.org"],
                "smtp": server,
                "webhook": f"http://127.0.0.1:{hook.server.server_port}/",
                "interval_s": 1.0,
                "core_away_s": 2,
                "clear_s": 2,
                "watch_away_s": 30,
                "off": ["disk"],
            }
            async with running(tmp_path, lab, {"alerts": alerts}) as core:
                migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
                await asyncio.to_thread(subprocess.run, migrate, cwd=ROOT, env=environment(core), check=True)
                watching = watch(core)
                other = watch(core)  # waits for the first to end

                async def all_checked() -> bool:
                    return count_of(core, "alerts_rulecheck WHERE checked_at IS NOT NULL") >= 8

                async def sent(count: int) -> bool:
                    return len(catcher.caught) >= count and len(hook.got) >= count and all_noted(core)

                try:
                    await core.eventually(all_checked, "the rules to be checked")
                    await core.control.close()
                    await asyncio.to_thread(core.stop)
                    await core.eventually(lambda: sent(1), "the mail about the core")
                    assert subjects(catcher) == [
                        "critical: The core does not answer; mail may not be accepted or delivered."
                    ]
                    assert hook.got == ["opened core_away"]

                    watching.send_signal(signal.SIGKILL)  # the other one goes on, and sends nothing again
                    watching.wait()
                    await core.start()
                    await core.eventually(lambda: sent(2), "the mail about the end")
                    assert subjects(catcher)[1:] == [
                        "ended: The core does not answer; mail may not be accepted or delivered."
                    ]
                    assert hook.got == ["opened core_away", "ended core_away"]
                    assert catcher.caught[0][:2] != ("", [])
                finally:
                    end(watching)
                    end(other)


async def test_bounces_of_one_sender_domain_are_told_once_also_over_a_restart_of_the_watch(tmp_path: Path) -> None:
    with hooked() as hook:
        async with Lab(["accept:127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
            alerts = {
                "webhook": f"http://127.0.0.1:{hook.server.server_port}/",
                "interval_s": 1.0,
                "sender_bounces_recipients": 5,
                "off": ["disk", "bounces"],
            }
            routes = {"bad.example": route_to(lab, 1)}
            async with running(tmp_path, lab, {"alerts": alerts}, routes=routes) as core:
                migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
                await asyncio.to_thread(subprocess.run, migrate, cwd=ROOT, env=environment(core), check=True)
                for number in range(4):
                    await core.until_removed(await core.send(f"{number}@bad.example", f"{number}@good.example"))
                    await core.until_removed(await core.send(f"{number}@good.example", sender="a@other.example"))
                watching = watch(core)
                try:
                    await core.eventually(lambda: _sent(core, hook.got), "an alert")
                    end(watching)
                    watching = watch(core)
                    await asyncio.sleep(5.0)
                    # Mail to the sender is mail without a sender, and the other domain has no bounces.
                    assert hook.got == ["opened sender_bounces:sender.example"]
                finally:
                    end(watching)


async def _sent(core: RunningCore, got: list[str]) -> bool:
    return bool(got) and all_noted(core)
