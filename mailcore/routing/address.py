"""Mail addresses: which of them may be put into an SMTP command, and where their domain begins.

The rule is RFC 5321 4.1.2 with RFC 6531 (any non-ASCII character), a little wider in the local part, as much mail is:
dots may stand anywhere. It is strict in what could end the path or the command: no control character, no bare space,
angle bracket or quote. aiosmtplib changes such addresses silently into other addresses; here they are refused.

Keeps law: addresses-not-repaired (docs/laws.md).
"""

from __future__ import annotations

import re

__all__ = ["is_mailbox", "is_return_path", "split"]

LOCAL_PART_MAX = 256  # octets; RFC 5321 4.5.3.1.1 says 64, real VERP senders are longer, a path has 256 (4.5.3.1.3)
ADDRESS_MAX = 512  # octets: such a local part, an @ and a domain of 255 (4.5.3.1.2)

_DOT_STRING = r"[^\x00-\x20\x7f-\x9f\ud800-\udfff()<>\[\]:;@\\,\"]+"
_QUOTED_STRING = r'"(?:[^\x00-\x1f\x7f-\x9f\ud800-\udfff"\\]|\\[\x20-\x7e])*"'
_LOCAL_PART = re.compile(rf"(?:{_DOT_STRING}|{_QUOTED_STRING})\Z")
_DOMAIN = r"(?:[^\x00-\x20\x7f-\x9f\ud800-\udfff()<>\[\]:;@\\,\"]+|\[[0-9A-Za-z.:_-]+\])"
_MAILBOX = re.compile(rf"(?:{_DOT_STRING}|{_QUOTED_STRING})@{_DOMAIN}\Z")


def split(address: str) -> tuple[str, str]:
    """Returns local part and domain, split at the last @; the domain is "" when there is no @."""
    local_part, at, domain = address.rpartition("@")
    return (local_part, domain) if at else (domain, "")


def is_mailbox(address: str) -> bool:
    """Returns whether the address may be used in RCPT TO:<...>: local part and domain, or a domain literal."""
    return _MAILBOX.match(address) is not None and _fits(address)


def is_return_path(address: str) -> bool:
    """Returns whether the address may be used in MAIL FROM:<...>: a mailbox, "" (a bounce), or a local part alone."""
    return not address or is_mailbox(address) or (_LOCAL_PART.match(address) is not None and _fits(address))


def _fits(address: str) -> bool:
    if len(address) <= LOCAL_PART_MAX // 4:  # no character takes more than four octets
        return True
    octets = address.encode()
    return len(octets) <= ADDRESS_MAX and (b"@" not in octets or octets.rindex(b"@") <= LOCAL_PART_MAX)
