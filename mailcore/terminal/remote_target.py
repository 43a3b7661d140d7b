"""Finds out which portal ``waypost --remote`` asks, with which token, and which certificates it accepts.

Laws
- The token is read from a file that other users cannot read; it is never an argument, which the list of processes would show.
- Only https, except to this host itself: a token must not be readable on its way.
- The certificate is verified: by the system's authorities, by ``--ca-file``, or by its fingerprint, which then alone counts.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mailcore.faults import Code
from mailcore.terminal.command import UsageError, fault_of

__all__ = ["Target", "target_of"]

REMOTE, TOKEN_FILE, CA_FILE, FINGERPRINT = (
    "WAYPOST_REMOTE", "WAYPOST_TOKEN_FILE", "WAYPOST_CA_FILE", "WAYPOST_FINGERPRINT",
)  # fmt: skip
TOKEN_BYTES_MAX = 4_096  # of the file; a token has 47 characters
KEY_MAX = 200
OPTIONS = ("token_file", "ca_file", "fingerprint", "request_key")  # each needs --remote
_HEADER = re.compile(r"authorization:\s*bearer\s+", re.IGNORECASE)  # docs/api.md keeps the token as a header
_FINGERPRINT = re.compile(r"(?:sha256[:/]?)?([0-9a-f]{64})", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True)
class Target:
    """A portal: its address, the token, and how its certificate is verified. ``prefix``: of the path, without a final /."""

    host: str
    port: int
    is_https: bool
    prefix: str
    token: str
    ca_file: str = ""
    fingerprint: str = ""  # SHA-256 of the certificate, 64 hexadecimal digits
    request_key: str = ""  # of changes; "": a new one for each command

    @property
    def shown(self) -> str:
        """Returns the address as a person writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = 443 if self.is_https else 80
        port = "" if self.port == usual else f":{self.port}"
        return f"{'https' if self.is_https else 'http'}://{host}{port}{self.prefix}"


def target_of(options: argparse.Namespace) -> Target | None:
    """Returns the portal that the options or the environment name; None: this host's Waypost. Raises UsageError."""
    address = options.remote if options.remote is not None else os.environ.get(REMOTE, "")
    if not address:
        given = next((name for name in OPTIONS if getattr(options, name) is not None), None)
        if given is not None:
            shown = f"--{given.replace('_', '-')}"
            raise UsageError(f"{shown} needs --remote URL, or {REMOTE} in the environment", argument=shown)
        return None
    host, port, is_https, prefix = _address(address)
    fingerprint = _given(options.fingerprint, FINGERPRINT)
    found = _FINGERPRINT.fullmatch(fingerprint.replace(":", "").strip()) if fingerprint else None
    if fingerprint and found is None:
        raise UsageError("--fingerprint: write the SHA-256 of the certificate, 64 hexadecimal digits")
    key = options.request_key or ""
    if key and (not _TOKEN.fullmatch(key) or len(key) > KEY_MAX):
        raise UsageError(f"--request-key: 1 to {KEY_MAX} visible ASCII characters are allowed")
    return Target(
        host,
        port,
        is_https,
        prefix,
        _token(_token_file(options)),
        _given(options.ca_file, CA_FILE),
        found.group(1).lower() if found is not None else "",
        key,
    )


def _given(option: str | None, variable: str) -> str:
    return option if option is not None else os.environ.get(variable, "")


def _address(text: str) -> tuple[str, int, bool, str]:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--remote: {error}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UsageError(f"--remote: write https://HOST, not {text!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError("--remote: only host, port and path are allowed; the token is in --token-file")
    is_https = parts.scheme == "https"
    if not is_https and not _is_this_host(parts.hostname):
        raise UsageError("--remote: http would send the token readable; use https, or http to 127.0.0.1 only")
    return parts.hostname, port or (443 if is_https else 80), is_https, parts.path.rstrip("/")


def _is_this_host(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _token_file(options: argparse.Namespace) -> Path:
    if given := _given(options.token_file, TOKEN_FILE):
        return Path(given)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "waypost" / "token"


def _token(path: Path) -> str:
    """Returns the token in a file: alone, or as a header. Raises UsageError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        how = f"{fault_of(error, str(path)).message}; make a token in the portal (menu at your name, Tokens)"
        raise UsageError(f"--token-file: {how}", argument="--token-file") from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"--token-file: {path} can be read by other users; run: chmod 600 {path}", code=Code.FORBIDDEN)
    token = _HEADER.sub("", text, count=1)
    if not _TOKEN.fullmatch(token):
        raise UsageError(f"--token-file: {path} has no token in its only line", argument="--token-file")
    return token
