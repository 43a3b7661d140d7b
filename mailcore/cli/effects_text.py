"""Says what a change of settings would do, for ``waypost settings``."""

from __future__ import annotations

from collections.abc import Iterator

from mailcore.control.protocol.effects import (
    ClientEffects,
    HopEffects,
    QueuedEffects,
    SettingsEffects,
    SignatureEffects,
)
from mailcore.counted import counted
from mailcore.terminal.output import plain
from mailcore.terminal.times import shown

__all__ = ["effects_lines"]


def effects_lines(effects: SettingsEffects) -> Iterator[str]:
    """Yields the lines, without control characters."""
    if effects.queued is not None:
        yield from _queued(effects.queued)
    if effects.signatures is not None:
        yield from _signatures(effects.signatures)
    if effects.clients is not None:
        yield from _clients(effects.clients)
    if effects.hops is not None:
        yield from _hops(effects.hops)
    if effects.not_judged:
        yield f"not known beforehand: the effect of {plain(', '.join(effects.not_judged))}"
    if effects.error:
        yield f"the look ended early: {plain(effects.error)}"


def _queued(queued: QueuedEffects) -> Iterator[str]:
    looked = counted(queued.examined, "queued message")
    part = "" if queued.complete else "; the time was over before all were read"
    if not queued.moves:
        yield f"queue: none of {looked} goes elsewhere{part}"
        return
    yield (
        f"queue: {counted(queued.recipients, 'recipient')} of {counted(queued.messages, 'message')} go elsewhere, "
        f"of {looked}{part}"
    )
    for each in queued.moves:
        yield f"    {plain(each.before)} -> {plain(each.after)}: {counted(each.recipients, 'recipient')}"
    if queued.more:
        yield f"    and {counted(queued.more, 'more pair')}"


def _signatures(signatures: SignatureEffects) -> Iterator[str]:
    looked = counted(signatures.examined, "queued message")
    part = "" if signatures.complete else "; the time was over before all were read"
    yield f"signatures: {counted(signatures.messages, 'message')} leave with other ones or none, of {looked}{part}"
    for each in signatures.changes:
        before, after = (", ".join(names) or "no signature" for names in (each.before, each.after))
        yield plain(f"    {each.domain}: {before} -> {after}: {counted(each.messages, 'message')}")
    if signatures.more:
        yield f"    and {counted(signatures.more, 'more change')}"
    if signatures.unread:
        yield f"    {counted(signatures.unread, 'message')} could not be read"
    if signatures.messages:
        yield "    mail is signed when it is delivered; keep the record of a key in the DNS for a week after its last signature"


def _clients(clients: ClientEffects) -> Iterator[str]:
    looked = f"{counted(clients.examined, 'message')} since {shown(clients.since)}"
    part = "" if clients.complete else "; the records of a whole week were not read"
    if not clients.clients:
        yield f"clients: none would be refused, of {looked}{part}"
    else:
        yield f"clients that would be refused, of {looked}{part}:"
    for each in clients.clients:
        login = f" ({each.login})" if each.login else ""
        maybe = "" if each.certain else "perhaps: "
        example = f", such as to {each.example}" if each.example else ""
        yield plain(
            f"    {each.client_address}{login}: {maybe}{each.reason}; {counted(each.messages, 'message')}{example}"
        )
    if clients.more:
        yield f"    and {counted(clients.more, 'more client')}"
    if clients.unexplained:
        yield f"    {counted(clients.unexplained, 'message')} could not be judged: other rules accepted them"


def _hops(hops: HopEffects) -> Iterator[str]:
    yield (
        f"next hops: {counted(hops.concerned, 'next hop')} concerned, {hops.tried} tried, "
        f"{len(hops.unreachable)} can't be reached"
    )
    for each in hops.unreachable:
        now = f" (nor now: {each.now})" if each.now else ""
        level = f" with {each.policy}" if each.policy else ""
        yield plain(f"    {each.destination}{level}: {each.reason}{now}")
    if hops.not_tried:
        yield f"    not tried: {plain(', '.join(hops.not_tried[:10]))}{' …' if len(hops.not_tried) > 10 else ''}"
