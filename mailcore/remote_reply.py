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
from typing import NamedTuple

__all__ = ["EXPIRED", "RemoteReply", "expired", "refused_to_talk", "remote_reply", "said"]

EXPIRED = "message has been in the queue too long, last: "  # precedes the last reply of a recipient whose time is over

_HOST = r"host ([^\s\[\]]+\[[^\s\[\]]*\])"  # a connection's name; a host name has neither space nor bracket
_CODE = r"[2-5][0-9][0-9](?![0-9])"  # RFC 5321 4.2
_SAID = re.compile(rf"{_HOST} said: ({_CODE}.*) \(in reply to [A-Za-z ]+ command\)", re.DOTALL)
_REFUSED = re.compile(rf"{_HOST} refused to talk to me: ({_CODE}.*)", re.DOTALL)
_BARE = re.compile(_CODE)


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


def expired(last: str) -> str:
    """Returns the text for a recipient whose queue lifetime is over. ``last``: the text that deferred it last."""
    return f"{EXPIRED}{last}"


def remote_reply(text: str) -> RemoteReply | None:
    """Returns host and reply out of the text of a verdict; None if the text is our own (RFC 3464 2.3.5, 2.3.6).

    The reply to the final dot of a delivered message is stored bare; its host is not in the text.
    """
    text = text.removeprefix(EXPIRED)
    found = _SAID.fullmatch(text) or _REFUSED.fullmatch(text)
    if found is not None:
        return RemoteReply(found[1], found[2])
    return RemoteReply("", text) if _BARE.match(text) else None
