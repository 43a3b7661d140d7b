"""The settings of logging in to next hops, [client_auth], and the file of logins that they name.

A line of the file is ``NEXT_HOP USER:PASSWORD`` as in Postfix's smtp_sasl_password_maps, ``NEXT_HOP xoauth2 USER FILE`` with a
file that holds a token, or the same with a sender's address in the place of the next hop. A sender's login is used only
towards next hops that have a line of their own, so that no password goes to the server of any other domain.

Law: a text that is made here, errors included, never has a password or a token in it.

Keeps law: secrets-stay-in-their-file (docs/laws.md).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mailcore.bounds import BadValue, bad, flag, text, texts
from mailcore.config import values

if TYPE_CHECKING:  # Ansible checks a text with Python alone, and frames need msgspec
    from mailcore.frames import NextHop

__all__ = [
    "NO_LOGINS",
    "ClientAuth",
    "Login",
    "LoginFileError",
    "Logins",
    "check_file",
    "next_hop_name",
    "parse_logins",
    "read_secret",
]

MECHANISMS = ("XOAUTH2", "PLAIN", "LOGIN")
FILE_BYTES_MAX = 1 << 20  # ten thousand logins
LINE_CHARACTERS_MAX = 8_192
_XOAUTH2 = "xoauth2"


def _mechanism(given: str) -> str:
    if given.upper() not in MECHANISMS:
        raise bad(given, f"must be a mechanism: {', '.join(MECHANISMS)}")
    return given.upper()


@dataclass(frozen=True, kw_only=True)
class ClientAuth:
    """[client_auth]: logging in to next hops, such as the server of a provider that sends our mail on."""

    password_file: str = text(
        "",
        "file with the logins, readable only by the user of the deliverers",
        special={"": "no login anywhere"},
    )
    mechanisms: tuple[str, ...] = texts(
        MECHANISMS,
        "SASL mechanisms in the order of preference; the first that the server offers and the login allows is used",
        _mechanism,
        values.no_repeats,
    )
    without_tls: bool = flag(False, "send passwords also over connections in the clear; false: such mail is deferred")
    without_verification: bool = flag(
        False,
        "send passwords also over TLS without a checked certificate, as under the levels may and encrypt, to any server that "
        "answers; false: such mail is deferred",
    )


NO_LOGINS = ClientAuth()


class Login(NamedTuple):
    """A user with a password, or with the file that holds its token. Its text form has no secret."""

    user: str
    password: str = ""
    token_file: str = ""

    def __repr__(self) -> str:
        """Returns the user's name only."""
        return f"Login({self.user!r})"

    def __str__(self) -> str:
        """Returns the same."""
        return repr(self)


class LoginFileError(Exception):
    """A file of logins or a file with a token that can't be used; the message has its reason and no secret."""


class Logins(NamedTuple):
    """The logins of a file by next hop, as destinations are named, and by sender, in lower case."""

    by_hop: Mapping[str, Login]
    by_sender: Mapping[str, Login]

    def of(self, names: tuple[str, ...], sender: str) -> Login | None:
        """Returns the login towards a next hop with these names, the most specific first; None without one."""
        for name in names:
            found = self.by_hop.get(name)
            if found is not None:
                return self.by_sender.get(sender.lower(), found) if self.by_sender else found
        return None


def next_hop_name(hop: NextHop, port: int) -> tuple[str, ...]:
    """Returns the names under which a file may have a next hop: with its port unless that is ``port``, and without."""
    named = hop.host if hop.mx else f"[{hop.host}]"
    return (named,) if hop.port == port else (f"{named}:{hop.port}", named)


def parse_logins(content: str, path: str, port: int) -> Logins:
    """Reads the lines of a file of logins. Raises LoginFileError, which names the line and not what is in it."""
    by_hop: dict[str, Login] = {}
    by_sender: dict[str, Login] = {}
    for number, line in enumerate(content.split("\n"), 1):
        words = line.strip().split(None, 1)
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(words) < 2 or len(line) > LINE_CHARACTERS_MAX:
            raise LoginFileError(f"{where}: must be NEXT_HOP USER:PASSWORD, or NEXT_HOP xoauth2 USER FILE")
        name, login = words[0], _login(words[1], where, os.path.dirname(path))
        try:
            table, key = by_hop, values.destination_pattern(name, port)
            if name.startswith("."):
                raise ValueError
            if "@" in name:
                table, key = by_sender, name.lower()
        except ValueError:
            raise LoginFileError(
                f'{where}: must begin with a next hop such as "[mail.example.org]:587", or with a sender\'s address'
            ) from None
        if key in table:
            raise LoginFileError(f"{where}: must not have {key} twice")
        table[key] = login
    return Logins(by_hop, by_sender)


def _login(given: str, where: str, directory: str) -> Login:
    words = given.split()
    if words[0] == _XOAUTH2:
        if len(words) != 3:
            raise LoginFileError(f"{where}: must be xoauth2 USER FILE behind the next hop")
        return Login(words[1], token_file=os.path.join(directory, words[2]))
    user, colon, password = given.partition(":")
    if not colon or not user or not password or "\0" in given:
        raise LoginFileError(f"{where}: must be USER:PASSWORD behind the next hop")
    return Login(user, password)


def read_secret(path: str, group: int | None) -> str:
    """Returns the content of a file with secrets. Raises LoginFileError, also if more people may read it than should.

    Its group may read it if that is ``group``; None: not known here, and not checked.
    """
    try:
        with open(path, "rb") as file:
            _check_mode(os.fstat(file.fileno()), path, group)
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise LoginFileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise LoginFileError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise LoginFileError(f"{path}: is not UTF-8") from None


def _check_mode(status: os.stat_result, path: str, group: int | None) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise LoginFileError(f"{path}: is not a file")
    if mode & 0o007:
        raise LoginFileError(
            f"{path}: has mode {mode:04o}, so every user of this host can open it; set it to 0600 or 0640"
        )
    if mode & 0o070 and group is not None and status.st_gid != group:
        raise LoginFileError(
            f"{path}: has mode {mode:04o}, and its group is not that of the deliverers; set its mode to 0600"
        )


def check_file(file: str, port: int, read: Callable[[str, int | None], str] = read_secret) -> None:
    """Checks a file of logins, as far as this user may read it. Raises BadValue named password_file."""
    try:
        os.stat(file)
        logins = parse_logins(read(file, None), file, port) if os.access(file, os.R_OK) else Logins({}, {})
        for login in (*logins.by_hop.values(), *logins.by_sender.values()):
            if login.token_file and (not Path(login.token_file).exists() or os.access(login.token_file, os.R_OK)):
                read(login.token_file, None)
    except LoginFileError as error:
        raise BadValue("password_file", file, f"must be a file of logins: {error}") from None
    except OSError as error:
        reason = f"must be a file of logins: {file}: cannot be read: {error.strerror}"
        raise BadValue("password_file", file, reason) from None
