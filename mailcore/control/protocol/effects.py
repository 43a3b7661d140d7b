"""Defines the operation that tells what a change of the settings would do: to queued mail, to clients, and to next hops."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result
from mailcore.control.protocol.settings import CHANGES_MAX, Revision, SettingChange

__all__ = [
    "CLIENTS_SHOWN",
    "HOPS_TRIED_MAX",
    "OPERATIONS",
    "ClientEffects",
    "HopEffects",
    "MailMove",
    "QueuedEffects",
    "RefusedClient",
    "SettingsEffects",
    "SettingsEffectsArguments",
    "SignatureChange",
    "SignatureEffects",
    "UnreachableHop",
]

CLIENTS_SHOWN = 100
HOPS_TRIED_MAX = 100


class SettingsEffectsArguments(Arguments, frozen=True, kw_only=True):
    """Changes of managed settings, or an earlier state to return to (``to``); one of them."""

    changes: Annotated[list[SettingChange], Meta(max_length=CHANGES_MAX)] = []
    to: Revision = ""
    seconds: Annotated[float, Meta(ge=0.5, le=600)] = 10.0  # to look; control.simulation_timeout_s if that is less
    hops: Annotated[int, Meta(ge=0, le=HOPS_TRIED_MAX)] = 20  # next hops that are tried


class MailMove(Result):
    """Queued recipients that go elsewhere after the change. Destinations, or what happens instead ("bounced: …")."""

    before: str
    after: str
    messages: int
    recipients: int
    bounces: bool


class QueuedEffects(Result):
    """The effects on mail in the queue."""

    examined: int  # messages
    complete: bool  # False: the time was over before all were read
    messages: int  # of these: with a recipient that goes elsewhere
    recipients: int
    moves: list[MailMove]
    more: int  # moves that are not listed


class RefusedClient(Result):
    """A client whose mail was accepted, and would be refused after the change."""

    client_address: str
    login: str
    reason: str
    messages: int
    last_at: float  # wall clock
    example: str  # a recipient that would be refused; "" if it is not because of a recipient
    certain: bool  # False: it depends on the address that it came to, which is not recorded


class ClientEffects(Result):
    """The effects on clients, as far as the mail of the last week tells."""

    since: float  # wall clock: the messages from then on were examined
    examined: int  # messages
    complete: bool  # False: the time was over, or the records do not reach back a week
    unexplained: int  # messages that the settings of now would not accept either, so that nothing can be said of them
    clients: list[RefusedClient]
    more: int  # clients that are not listed


class UnreachableHop(Result):
    """A next hop that could not be reached as the settings demand after the change."""

    destination: str
    policy: str  # the level and where it comes from
    reason: str
    now: str  # why it can't be reached with the settings of now either; "": it can
    queued: int  # recipients
    week: int  # recipients of the last week


class HopEffects(Result):
    """The effects on next hops: those whose policy changes, and those that mail moves to."""

    concerned: int
    tried: int  # a connection was made, and no mail sent
    unreachable: list[UnreachableHop]
    not_tried: list[str]  # destinations, those with the most mail first; at most 100


class SignatureChange(Result):
    """Queued messages of a domain that would leave with other DKIM signatures. Keys by the names of their records."""

    domain: str  # in the From field
    before: list[str]  # []: no signature
    after: list[str]
    messages: int


class SignatureEffects(Result):
    """The effects on the DKIM signatures of mail in the queue, which is signed when it is delivered."""

    examined: int  # messages
    complete: bool  # False: the time was over before all were read
    unread: int  # messages whose From field could not be read
    messages: int  # that leave with other signatures, or without one
    changes: list[SignatureChange]
    more: int  # changes that are not listed


class SettingsEffects(Result):
    """The effects that a change would have. A part is None where the change does not concern it."""

    queued: QueuedEffects | None
    clients: ClientEffects | None
    hops: HopEffects | None
    not_judged: list[str]  # changed settings whose effect on mail and clients is not known beforehand
    took_s: float
    signatures: SignatureEffects | None = None
    error: str = ""  # the look ended early because of it


OPERATIONS = (
    Operation(
        "settings_effects",
        SettingsEffectsArguments,
        Access.READ,
        Answerer.CONTROL,
        "Tell what a change of settings would do to queued mail, clients and next hops.",
        SettingsEffects,
    ),
)
