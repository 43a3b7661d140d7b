"""Logging in to a next hop: the login that the file has for it, and the conversation of AUTH (RFC 4954).

Laws:
- A password or token is sent only to a next hop that has a line in the file, and only over TLS with a checked certificate
  unless a setting says otherwise. The mechanism is one that the server offers on this connection, after STARTTLS: what it
  offered before counts for nothing.
- No secret is in a text made here. A server that repeats one in its reply gets it struck out.
- A next hop that has a login never gets mail without it: an unauthenticated transaction would be refused for good.

Keeps law: secrets-stay-in-their-file (docs/laws.md).
"""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable, Sequence

from mailcore.config.client_auth import (
    ClientAuth,
    Login,
    LoginFileError,
    Logins,
    next_hop_name,
    parse_logins,
    read_secret,
)
from mailcore.deliverer.connection import Connection
from mailcore.deliverer.replies import Reply
from mailcore.frames import NextHop
from mailcore.remote_reply import refused_login

__all__ = ["LoginFile", "authenticate"]

CHECK_S = 1.0  # a changed file is in force after this time
STRUCK_OUT = "(struck out)"


class LoginFile:
    """The file of logins, read again when it changes."""

    def __init__(self, path: str, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._port = port
        self._clock = clock
        self._checked_at = float("-inf")
        self._version: object = None
        self._found: Logins | LoginFileError = LoginFileError(f"{path}: not read yet")

    def of(self, hop: NextHop, sender: str) -> Login | None:
        """Returns the login towards ``hop``. Raises LoginFileError while the file can't be used: a login may be missing."""
        now = self._clock()
        if now - self._checked_at >= CHECK_S:
            self._checked_at = now
            self._look()
        if isinstance(self._found, LoginFileError):
            raise self._found
        return self._found.of(next_hop_name(hop, self._port), sender)

    def _look(self) -> None:
        try:
            status = os.stat(self._path)
            version = (
                status.st_mtime_ns,
                status.st_ino,
                status.st_size,
                status.st_mode,
                status.st_gid,
                status.st_ctime_ns,
            )
        except OSError as error:
            self._version, self._found = None, LoginFileError(f"{self._path}: cannot be read: {error.strerror}")
            return
        if version == self._version:
            return
        self._version = version
        try:
            self._found = parse_logins(read_secret(self._path, os.getegid()), self._path, self._port)
        except LoginFileError as error:
            self._found = error


async def authenticate(
    connection: Connection, login: Login, settings: ClientAuth, timeout_s: float, level: str
) -> tuple[str, str]:
    """Logs in; returns ("", ""), or the enhanced code and the words with which the mail is deferred. ``level``: for these."""
    if not connection.tls and not settings.without_tls:
        return "4.7.11", f"host {connection.name} needs a login, which is not sent over a connection in the clear"
    if not connection.tls_verified and not (settings.without_verification or settings.without_tls):
        words = f"host {connection.name} needs a login, which is not sent without a checked certificate (TLS level: {level})"
        return "4.7.11", words
    offered = {name.upper() for name in connection.mechanisms}
    if not offered:
        return "4.7.0", f"there is a login for host {connection.name}, but it offers no AUTH"
    able = ("XOAUTH2",) if login.token_file else ("PLAIN", "LOGIN")
    mechanism = next((name for name in settings.mechanisms if name in able and name in offered), None)
    if mechanism is None:
        shown = ", ".join(sorted(offered))[:200]
        return (
            "4.7.0",
            f"SASL authentication failed; host {connection.name} offers no mechanism that fits the login: {shown}",
        )
    try:
        secret = read_secret(login.token_file, os.getegid()).strip() if login.token_file else login.password
    except LoginFileError as error:
        return "4.3.5", f"SASL authentication failed; {error}"
    steps, secrets = _steps(mechanism, login.user, secret)
    reply = await _converse(connection, mechanism, steps, timeout_s)
    if reply is None:
        return "4.4.2", f"lost connection with {connection.name} while logging in"
    if 200 <= reply.code < 300:
        return "", ""
    text = _struck_out(reply.text, secrets)
    return "4.7.8", refused_login(connection.name, text)


def _steps(mechanism: str, user: str, secret: str) -> tuple[list[bytes], list[str]]:
    """Returns what is sent in answer to each 334, an initial response first, and all forms of the secret."""
    if mechanism == "PLAIN":
        steps = [_encoded(f"\0{user}\0{secret}")]
    elif mechanism == "LOGIN":
        steps = [_encoded(user), _encoded(secret)]
    else:
        steps = [
            _encoded(f"user={user}\1auth=Bearer {secret}\1\1"),
            b"",
        ]  # "" asks for the 535 behind the 334 with the fault
    return steps, [secret, _encoded(secret).decode(), *(step.decode() for step in steps if step)]


def _encoded(given: str) -> bytes:
    return base64.b64encode(given.encode())


async def _converse(connection: Connection, mechanism: str, steps: Sequence[bytes], timeout_s: float) -> Reply | None:
    """Sends AUTH and the answers to 334; returns the last reply. A server that asks on gets "*", which ends it."""
    left = list(steps)
    first = b"AUTH " + mechanism.encode()
    reply = await connection.command(first if mechanism == "LOGIN" else first + b" " + left.pop(0), timeout_s)
    while reply is not None and reply.code == 334:
        if not left:
            return await connection.command(b"*", timeout_s)
        reply = await connection.command(left.pop(0), timeout_s)
    return reply


def _struck_out(text: str, secrets: Sequence[str]) -> str:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, STRUCK_OUT)
    return text
