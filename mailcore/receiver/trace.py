"""Our trace header: the Received field put in front of every message (RFC 5321 4.4). Pure; time is an argument."""

from __future__ import annotations

import re
import time

__all__ = ["TraceHeader", "protocol_name"]

# Not strftime's: the names in a header are English, in any locale (RFC 5322 3.3).
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNSAFE = re.compile(r"[^A-Za-z0-9._:\[\]-]")  # could end the field or open a comment


def protocol_name(extended: bool, tls: bool, login: bool, smtputf8: bool) -> str:
    """Returns the protocol name for the "with" of Received (RFC 3848, RFC 6531 4.3)."""
    if not extended:
        return "SMTP"
    return ("UTF8SMTP" if smtputf8 else "ESMTP") + ("S" if tls else "") + ("A" if login else "")


class TraceHeader:
    """Makes the Received fields of one server; the date is formatted once a second."""

    def __init__(self, hostname: str) -> None:
        self._by = f"\tby {hostname} (Waypost) with "
        self._second = -1
        self._date = ""

    def received(
        self, helo: str, client_address: str, protocol: str, queue_id: str, only: str, now: float, client_name: str = ""
    ) -> bytes:
        """Returns the field. ``only``: the recipient when there is just one, else "" (recipients must not see each other).

        ``now`` is wall-clock seconds. ``client_name`` is a host name, of the address, or "" if it is unknown.
        """
        second = int(now)
        if second != self._second:
            self._second = second
            self._date = _date(second)
        literal = f"IPv6:{client_address}" if ":" in client_address else client_address
        about = f" id {queue_id};\r\n\t" if not only else f" id {queue_id}\r\n\tfor <{only}>; "
        name = _UNSAFE.sub("?", helo)
        client = f"{client_name or 'unknown'} [{literal}]"
        return (f"Received: from {name} ({client})\r\n{self._by}{protocol}{about}{self._date}\r\n").encode()


def _date(second: int) -> str:
    t = time.gmtime(second)
    return (
        f"{_DAYS[t.tm_wday]}, {t.tm_mday} {_MONTHS[t.tm_mon - 1]} {t.tm_year} "
        f"{t.tm_hour:02d}:{t.tm_min:02d}:{t.tm_sec:02d} +0000 (UTC)"
    )
