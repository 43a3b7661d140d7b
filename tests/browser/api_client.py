"""Asks the HTTP API of a site that runs, with a token that is made in its database.

api = await token_of(it, "operator")
status, answer = await api.ask("GET", "/overview")
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

from tests.browser.site import Site, _environment
from tests.eventually import PATIENCE_S
from tests.test_tidy import ROOT

__all__ = ["Api", "token_of"]

MAKE = """
from django.contrib.auth.models import User
from appliance.api.scopes import Scope
from appliance.api.tokens import make
print("TOKEN" + make(User.objects.get(username={name!r}), "a program", list(Scope), 30)[1])
"""


class Api:
    def __init__(self, it: Site, token: str) -> None:
        self.site = it
        self.token = token

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and answer. ``body``: bytes of a message, or a value that is sent as JSON."""
        return await asyncio.to_thread(self.ask_now, method, path, body, **headers)

    def ask_now(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The same, in this thread. Raises OSError if the portal ends meanwhile."""
        kind = "message/rfc822" if isinstance(body, bytes) else "application/json"
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if method == "POST" else None
        named = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.site.url(f"/api/v1{path}"), data, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return int(answer.status), json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def read(self, path: str) -> bytes:
        """The body of an answer that is not JSON. Raises HTTPError."""
        request = urllib.request.Request(
            self.site.url(f"/api/v1{path}"), headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            data: bytes = answer.read()
            return data


async def token_of(it: Site, name: str) -> Api:
    """A client with a token of this user, of all scopes."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "manage.py", "shell", "--no-imports", "--command", MAKE.format(name=name)], cwd=ROOT,
        env=_environment(it.core.directory / "waypost.toml"), capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return Api(it, done.stdout.decode().partition("TOKEN")[2].strip())
