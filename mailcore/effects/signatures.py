"""Queued mail that would be signed with other DKIM keys, or with none: reads the From field of each message that is ours.

Mail is signed when it is delivered, so a key that is removed or replaced concerns what waits now.

Keeps law: effects-tell-and-change-nothing (docs/laws.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from mailcore.config.dkim import DkimKey, KeysByDomain
from mailcore.config.settings import Settings
from mailcore.control.message_data import HEADER_SECTION_MAX, Mark, open_wire, unstuffed
from mailcore.control.protocol.effects import SignatureChange, SignatureEffects
from mailcore.dkim.canonical import fields_of
from mailcore.dkim.signature import author_domain
from mailcore.effects.budget import Deadline
from mailcore.effects.queued import envelopes_in
from mailcore.envelope import Envelope
from mailcore.log.disk import Disk
from mailcore.lookup.browse import Found, Stretch, lane_order
from mailcore.lookup.tracing import Walk
from mailcore.queue.lanes import DELETED
from mailcore.queue.spool import Spool
from mailcore.routing.domain_pattern import covers
from mailcore.routing.networks import Networks, is_ours

__all__ = ["CHANGES_SHOWN", "look_at_signatures"]

CHANGES_MAX = 1_000  # kinds of change that are counted by name
CHANGES_SHOWN = 100
HEADER_END = b"\r\n\r\n"

_Names = tuple[str, ...]


class Signers:
    """The keys of settings, and which messages they sign: the rules of the deliverers."""

    def __init__(self, settings: Settings) -> None:
        self._keys = KeysByDomain[DkimKey]()
        for key in settings.dkim:
            self._keys.add(key.domain, key, subdomains=key.subdomains)
        self._networks = Networks(settings.relay.networks)
        self.is_any = bool(settings.dkim)

    def signs(self, envelope: Envelope) -> bool:
        """Returns whether a message is signed if its author has a key."""
        return self.is_any and is_ours(envelope, self._networks)

    def keys_of(self, envelope: Envelope, domain: str) -> list[DkimKey]:
        """Returns the keys that sign a message with this domain in its From field."""
        if not self.signs(envelope):
            return []
        if envelope.author_domains is not None and not covers(envelope.author_domains, domain):
            return []
        return self._keys.of(domain)


def look_at_signatures(
    disk: Disk, old: Settings, new: Settings, stretches: Mapping[str, Stretch], deadline: Deadline
) -> SignatureEffects:
    """Returns the queued messages whose signatures would be others. Raises OSError."""
    before, after = Signers(old), Signers(new)
    queue, spool = str(old.queue_directory), Spool(disk, str(old.spool_directory))
    counts: dict[tuple[str, _Names, _Names], int] = {}
    examined = unread = 0
    for lane in sorted((lane for lane in stretches if lane != DELETED), key=lane_order):
        for envelope, offset in envelopes_in(disk, queue, lane, stretches[lane], deadline):
            examined += 1
            if not (before.signs(envelope) or after.signs(envelope)):
                continue
            domain = _author_of(disk, queue, spool, Found(lane, offset, envelope))
            if domain is None:
                unread += 1
                continue
            was, then = before.keys_of(envelope, domain), after.keys_of(envelope, domain)
            if was != then:
                change = domain, _names(was), _names(then, was)
                if change in counts or len(counts) < CHANGES_MAX:
                    counts[change] = counts.get(change, 0) + 1
    rows = [
        SignatureChange(domain=domain, before=list(was), after=list(then), messages=messages)
        for (domain, was, then), messages in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]
    return SignatureEffects(
        examined=examined,
        complete=not deadline.is_over,
        unread=unread,
        messages=sum(each.messages for each in rows),
        changes=rows[:CHANGES_SHOWN],
        more=max(len(rows) - CHANGES_SHOWN, 0),
    )


def _names(keys: Sequence[DkimKey], before: Sequence[DkimKey] = ()) -> _Names:
    """Returns the records of keys; one that another file has now is marked."""
    files = {(each.domain, each.selector): each.key for each in before}
    return tuple(
        f"{each.selector}._domainkey.{each.domain}"
        + (" (another key)" if files.get((each.domain, each.selector), each.key) != each.key else "")
        for each in keys
    )


def _author_of(disk: Disk, queue: str, spool: Spool, found: Found) -> str | None:
    """Returns the domain of the From field; "" if there is not one author; None if the data can't be read."""
    try:
        wire = open_wire(disk, queue, spool, found)
        if wire is None:
            return None
        with closing(wire):
            read = Walk(unstuffed(wire, 0, HEADER_SECTION_MAX, Mark()))
            read.go(float("inf"), time.monotonic)
    except OSError:
        return None
    assert read.result is not None  # it went to its end
    data, _, _ = read.result
    return author_domain(fields_of(b"" if data.startswith(b"\r\n") else data.partition(HEADER_END)[0]))
