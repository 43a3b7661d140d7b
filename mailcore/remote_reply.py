"""Our sentence about a server's reply, and the way back: which server it was, and the reply itself.

A verdict stores one text. Operators know its form from Postfix's log: ``host NAME[ADDRESS] said: REPLY (in reply to RCPT TO
command)``. A report to a sender (RFC 3464) needs the two parts apart: Remote-MTA and Diagnostic-Code. The sentence is written
here and read here, so nothing is stored twice, and a queue of an older version can be read too.

Laws
- What was written comes back as it was: ``remote_reply(said(host, reply, command))`` is host and reply for any reply, also
  for one that looks like a sentence of ours.
- A sentence of our own never comes back as a reply: it begins neither with "host" and an address in brackets nor with a code.

Pure. Must not know: sockets, queue.

Keeps law: diagnostic-is-the-remote (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

__all__ = [
    "EXPIRED",
    "SUSPENDED",
    "RemoteReply",
    "code_said",
    "expired",
    "refused_login",
    "refused_tls",
    "refused_to_talk",
    "remote_reply",
    "said",
    "suspended",
]

EXPIRED = "message has been in the queue too long, last: "  # precedes the last reply of a recipient whose time is over
SUSPENDED = "delivery temporarily suspended: "  # precedes the reason for which a destination is dead

_NAME = r"([^\s\[\]]+\[[^\s\[\]]*\])"  # a connection's name; a host name has neither space nor bracket
_HOST = f"host {_NAME}"
_CODE = r"[2-5][0-9][0-9](?![0-9])"  # RFC 5321 4.2
_SAID = re.compile(rf"{_HOST} said: ({_CODE}.*) \(in reply to [A-Za-z ]+ command\)", re.DOTALL)
_REFUSED = re.compile(rf"{_HOST} refused to talk to me: ({_CODE}.*)", re.DOTALL)
_REFUSED_TLS = re.compile(rf"TLS is required, but {_HOST} refused to start TLS: ({_CODE}.*)", re.DOTALL)
_REFUSED_LOGIN = re.compile(rf"SASL authentication failed; server {_NAME} said: ({_CODE}.*)", re.DOTALL)
_OF_THE_SITE = (_REFUSED, _REFUSED_TLS, _REFUSED_LOGIN)  # said of all mail
_BARE = re.compile(_CODE)
_ENHANCED = re.compile(
    r"([245])[0-9]{2}[ -](\1\.[0-9]{1,3}\.[0-9]{1,3})(?![0-9.])"
)  # RFC 2034 4: the class is that of the reply


class RemoteReply(NamedTuple):
    """The reply of a server. ``host`` is ``name[address]``, or "" where the text does not name it."""

    host: str
    reply: str


def said(host: str, reply: str, command: str) -> str:
    """Returns Postfix's text for a refusal, which pflogsumm and operators know. ``host``: ``name[address]``."""
    return f"host {host} said: {reply} (in reply to {command} command)"


def refused_to_talk(host: str, reply: str) -> str:
    """Returns Postfix's text for a server that refuses before the first mail. ``host``: ``name[address]``."""
    return f"host {host} refused to talk to me: {reply}"


def refused_tls(host: str, reply: str) -> str:
    """Returns Postfix's text for a server that refuses STARTTLS where TLS is demanded. ``host``: ``name[address]``."""
    return f"TLS is required, but host {host} refused to start TLS: {reply}"


def refused_login(host: str, reply: str) -> str:
    """Returns Postfix's text for a server that refuses a login; ``reply`` has no secret. ``host``: ``name[address]``."""
    return f"SASL authentication failed; server {host} said: {reply}"


def suspended(reason: str) -> str:
    """Returns Postfix's text for mail that is deferred without an attempt. ``reason``: of its dead destination."""
    return f"{SUSPENDED}{reason}"


def expired(last: str) -> str:
    """Returns the text for a recipient whose queue lifetime is over. ``last``: the text that deferred it last."""
    return f"{EXPIRED}{last}"


def remote_reply(text: str) -> RemoteReply | None:
    """Returns host and reply out of the text of a verdict; None if the text is our own (RFC 3464 2.3.5, 2.3.6).

    The reply to the final dot of a delivered message is stored bare; its host is not in the text.
    """
    text = text.removeprefix(EXPIRED)
    if text.startswith(SUSPENDED):  # an answer to other mail; what was said about its recipients would not count
        return _of_host(text.removeprefix(SUSPENDED), _OF_THE_SITE)
    found = _of_host(text, (_SAID, *_OF_THE_SITE))
    return found or (RemoteReply("", text) if _BARE.match(text) else None)


def code_said(text: str) -> str:
    """Returns the enhanced status code (RFC 3463) of the reply in the text of a verdict; "" if there is none in it."""
    remote = remote_reply(text)
    found = None if remote is None else _ENHANCED.match(remote.reply)
    return "" if found is None else found[2]


def _of_host(text: str, sentences: Sequence[re.Pattern[str]]) -> RemoteReply | None:
    for each in sentences:
        found = each.fullmatch(text)
        if found is not None:
            return RemoteReply(found[1], found[2])
    return None
