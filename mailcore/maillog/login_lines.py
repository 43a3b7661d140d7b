"""The lines of the mail log about logins, the file of users, and certificates."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import client_text, free, word

__all__ = ["LoginLines"]


class LoginLines(Lines):
    """A part of ``MailLog``."""

    def login_failed(self, client_address: str, method: str, login: str, why: str) -> None:
        """Logs a login that was refused; ``login`` is "" unless a user has that name: it may be a password."""
        about = f", sasl_username={word(login)}" if login else ""
        client = client_text("unknown", client_address)
        self._warning("smtpd", f"{client}: SASL {word(method)} authentication failed: {free(why)}{about}")
        self._object("login_failed", client_address=client_address, method=method, login=login, why=why)

    def users_read(self, path: str, users: int) -> None:
        """Logs that the file of the users who may log in was read."""
        self._line("smtpd", f"{word(path)}: {counted(users, 'user')}")
        self._object("users_read", path=path, users=users)

    def users_refused(self, path: str, faults: Sequence[str], users: int, *, at_start: bool) -> None:
        """Logs each fault of the file of the users, and how many users can log in all the same."""
        for fault in faults:
            self._warning("smtpd", f"users: {free(fault)}")
        kept = f"{users} user{'' if users == 1 else 's'}"
        outcome = (
            f"the lines with a fault are left out; {kept} can log in"
            if at_start
            else f"it is not used; {kept} stay as they were before"
        )
        self._warning("smtpd", f"{word(path)}: {outcome}")
        self._object("users_refused", path=path, why="; ".join(faults), kept=users, at_start=at_start)

    def certificate_refused(self, path: str, why: str, instead: str) -> None:
        """Logs that a certificate cannot be used, and what is used instead."""
        self._warning("smtpd", f"certificate {word(path)}: {free(why)}; {free(instead)}")
        self._object("certificate_refused", path=path, why=why, instead=instead)

    def certificate_read(self, path: str, until: float) -> None:
        """Logs that another certificate is in use for new connections; ``until`` is the end of its validity."""
        day = time.strftime("%Y-%m-%d", time.gmtime(until))
        self._line("smtpd", f"certificate {word(path)}: in use, valid until {day}")
        self._object("certificate_read", path=path, until=until)
