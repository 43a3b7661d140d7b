"""The whole of it for a browser: a real core with a lab behind it, the portal as ./run starts it, and Debian's Chromium.

    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab) as it:
        await it.core.send("a@example.org")
        page = await it.sign_in("operator")
        await page.goto(it.url("/queue/"))

Users viewer, operator and administrator are there, with PASSWORD, and each has signed in once. Pages fail the test at a script
error, a message of the browser's console, or anything the Content-Security-Policy stopped (``it.complaints``).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from mailcore.lab.lab import Lab
from tests.browser.chromium import SHARED
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_MS, PATIENCE_S
from tests.running.running_core import RunningCore, Sections, running
from tests.running.running_shards import running_shards
from tests.test_tidy import ROOT

__all__ = ["PASSWORD", "RUN", "Site", "site"]

expect.set_options(timeout=PATIENCE_MS)  # five seconds are too few beside a busy machine

RUN: dict[str, Path] = {}  # "directory": what all workers of a run share (tests/browser/conftest.py)
PASSWORD = "a long enough password"
SESSION = "waypost-session"  # the cookie
MAKE_USERS = f"""
import json
from django.contrib.auth.models import Group, User
from django.test import Client
sessions = {{}}
for name in ("viewer", "operator", "administrator"):
    user = User.objects.create_user(name, password={PASSWORD!r})
    user.groups.add(Group.objects.get(name=name))
    client = Client(headers={{"host": "127.0.0.1"}})
    answer = client.post("/accounts/login/", {{"login": name, "password": {PASSWORD!r}}})
    assert answer.status_code == 302, answer.content
    sessions[name] = client.cookies[{SESSION!r}].value
print("SESSIONS" + json.dumps(sessions))
"""
# No page and no test of one may depend on a text of the control socket. The static files were collected by prepared().
REWORDED = """
import runpy, sys
from django.core import management
from tests.faults import reword
reword()
call = management.call_command
management.call_command = lambda name, *words, **named: None if name == "collectstatic" else call(name, *words, **named)
sys.argv[0] = "manage.py"
runpy.run_path("manage.py", run_name="__main__")
"""


def prepared(root: Path) -> Path:
    """A home/portal with its database, users and static files, made once a run and copied for each site.

    ``root``: a directory that all workers of the run share. Beside the portal lies ``sessions.json``: the cookie of each user.
    """
    made = root / "prepared"
    with (root / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            making = root / "preparing"
            shutil.rmtree(making, ignore_errors=True)  # of a worker that was killed
            making.mkdir()
            (making / "waypost.toml").write_text('home = "."\n')
            _manage(making, "serve", "--prepare")
            said = _manage(making, "shell", "--no-imports", "--command", MAKE_USERS)
            (making / "sessions.json").write_text(said.partition("SESSIONS")[2])
            making.rename(made)
    return made


def copied(portal: Path, to: Path) -> None:
    """Copies what a site writes, and links the 800 static files, which it only reads."""
    shutil.copytree(portal, to, ignore=shutil.ignore_patterns("static"))
    (to / "static").symlink_to(portal / "static")


def _manage(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=_environment(directory / "waypost.toml"),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


def _environment(config: Path) -> dict[str, str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    }
    return environment | {"WAYPOST_CONFIG": str(config)}


class Site:
    def __init__(self, core: RunningCore, port: int, browser: Browser, sessions: Mapping[str, str]) -> None:
        self.core = core
        self.port = port
        self.browser = browser
        self.sessions = sessions
        self.complaints: list[str] = []
        self.contexts: list[BrowserContext] = []
        self.process: subprocess.Popen[bytes] | None = None

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def sign_in(self, role: str = "administrator", **context: Any) -> Page:
        """A page of a context of its own, with the session that this user began when the portal was prepared.

        For tests of what a user does afterwards: the form and the hash of the password take longer than most of these.
        ``context``: of playwright's new_context (viewport, color_scheme).
        """
        page = await self.page(**context)
        await page.context.add_cookies([{"name": SESSION, "value": self.sessions[role], "url": self.url("/")}])
        await page.goto(self.url("/"))
        assert page.url == self.url("/"), page.url
        return page

    async def sign_in_by_form(self, role: str = "administrator", **context: Any) -> Page:
        """A page of a context of its own, signed in with the password now."""
        page = await self.page(**context)
        await page.goto(self.url("/accounts/login/"))
        await page.fill("input[name=login]", role)
        await page.fill("input[name=password]", PASSWORD)
        await page.click("main button[type=submit]")
        await page.wait_for_url(self.url("/"))
        return page

    async def page(self, **context: Any) -> Page:
        made: BrowserContext = await self.browser.new_context(**{"timezone_id": "Europe/Vienna", **context})
        made.set_default_timeout(PATIENCE_MS)
        self.contexts.append(made)
        page = await made.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        return page

    def _console(self, message: ConsoleMessage) -> None:
        # What a page is answered with 4xx and 5xx is told by the browser, too; tests that ask for it look at the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    async def start(self, *, reworded: bool = True) -> None:
        """The portal, as ./run starts it; what the core says to it has other words, but for tests of what is named."""
        errors = (self.core.directory / "portal.err").open("ab")
        # In this thread: the kernel tells the portal when the thread that started it ends.
        self.process = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond
            [
                sys.executable,
                "-c",
                REWORDED if reworded else REWORDED.replace("\nreword()\n", "\n"),
                "serve",
                "--with-parent",
                str(os.getpid()),
            ],
            cwd=ROOT,
            env=_environment(self.core.directory / "waypost.toml"),
            stderr=errors,
        )
        errors.close()
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not await asyncio.to_thread(self._answers):
            words = (self.core.directory / "portal.err").read_text()
            assert self.process.poll() is None, words
            assert asyncio.get_running_loop().time() < end, words
            await asyncio.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url("/accounts/login/"), timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)


@asynccontextmanager
async def site(
    tmp_path: Path, lab: Lab, sections: Sections | None = None, shards: int = 1, **running_named: Any
) -> AsyncIterator[Site]:
    """A core whose mail goes to ``lab``, the portal beside it, a browser. Ends with no complaint of the browser."""
    port = free_port()
    given = sections or {}
    merged: dict[str, Mapping[str, object]] = {
        **given, "portal": {"listen": f"127.0.0.1:{port}", **given.get("portal", {})},
    }  # fmt: skip
    of_shards = running_shards(tmp_path, lab, merged, shards=shards) if shards > 1 else None
    async with of_shards or running(tmp_path, lab, merged, **running_named) as core:
        made = await asyncio.to_thread(prepared, RUN["directory"])
        await asyncio.to_thread(copied, made / "portal", core.home / "portal")
        it = Site(core, port, await SHARED.get(), json.loads((made / "sessions.json").read_text()))
        try:
            await it.start()
            yield it
        finally:
            for context in it.contexts:
                await context.close()
            await it.stop()
    assert not it.complaints, it.complaints
