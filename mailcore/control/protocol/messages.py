"""Defines the operations about messages: pages of the queue, one message, why it waits, what became of it, and its data."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from mailcore.control.protocol.operation import (
    CHUNK_BYTES_MAX,
    Access,
    Answerer,
    Arguments,
    Offset,
    Operation,
    QueueId,
    QueueIds,
    Result,
    check_filter,
    check_given,
)
from mailcore.lookup.answers import (
    Accepted,
    Administered,
    AgesRow,
    AgesTable,
    Attempt,
    AttemptVerdict,
    BounceQueued,
    Deferred,
    Finished,
    History,
    HistoryEvent,
    Hit,
    Item,
    Moved,
    Oldest,
    Page,
    Settled,
)
from mailcore.lookup.filter import Filter
from mailcore.manager_answers import Cut, Progress, Reason, Reasons, Working

__all__ = [
    "OPERATIONS",
    "PAGE_MAX",
    "SEARCH_CURSOR_MAX",
    "SEARCH_MAX",
    "Accepted",
    "Administered",
    "AgesArguments",
    "AgesPart",
    "AgesRow",
    "AgesTable",
    "Attempt",
    "AttemptVerdict",
    "BounceQueued",
    "Cut",
    "DataArguments",
    "DataPiece",
    "Deferred",
    "Details",
    "Finished",
    "Headers",
    "History",
    "HistoryEvent",
    "HistoryPart",
    "Hit",
    "Item",
    "ListArguments",
    "ListPage",
    "Moved",
    "Oldest",
    "OneMessage",
    "Progress",
    "Reason",
    "Reasons",
    "SearchArguments",
    "SearchPart",
    "Settled",
    "ShowArguments",
    "ShowPart",
    "ShownRecipient",
    "Working",
    "WorkingArguments",
]

PAGE_MAX = 1_000  # items of one page; about 600 kB
CURSOR_MAX = 1_000  # a place in a lane of each of 16 shards has half of that
SEARCH_MAX = 200  # messages of one search's page; what became of each is looked up in the journal
SEARCH_CURSOR_MAX = 4_000  # holds the searched part of each lane: with 64 receivers' lanes half of that


class ListArguments(Arguments, frozen=True, kw_only=True):
    """One page, or what could be read of it in a fifth of a second: continue while there is a cursor."""

    filter: Filter = Filter()
    cursor: Annotated[str, Meta(max_length=CURSOR_MAX)] = ""  # "": the beginning
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100

    def __post_init__(self) -> None:
        check_filter(self.filter)


class OneMessage(Arguments, frozen=True, kw_only=True):
    """One message, by its queue id."""

    queue_id: QueueId


class ShowArguments(Arguments, frozen=True, kw_only=True):
    """One message, with or without its recipients."""

    queue_id: QueueId
    recipients: bool = True  # all of them, in further parts


class SearchArguments(Arguments, frozen=True, kw_only=True):
    """Texts as in a filter: ``*`` and ``?`` stand for any characters. A page may be empty: continue while there is a cursor."""

    queue_id: QueueId | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET
    cursor: Annotated[str, Meta(max_length=SEARCH_CURSOR_MAX)] = ""  # "": the beginning
    limit: Annotated[int, Meta(ge=1, le=SEARCH_MAX)] = 50

    def __post_init__(self) -> None:
        check_given(self)


class DataArguments(Arguments, frozen=True, kw_only=True):
    """A piece of a message's data."""

    queue_id: QueueId
    offset: Offset = 0  # in the data as received, without dot-stuffing
    length: Annotated[int, Meta(ge=1, le=CHUNK_BYTES_MAX)] = CHUNK_BYTES_MAX


class WorkingArguments(Arguments, frozen=True, kw_only=True):
    """The messages to look for in the active set."""

    queue_ids: QueueIds


class AgesArguments(Arguments, frozen=True, kw_only=True):
    """Whether the ages are counted again."""

    refresh: bool = False  # a new scan, however short ago the last one was


class ListPage(Page, kw_only=True, omit_defaults=True):
    """A page of the queue; a page without damage has no key ``damage``."""

    manager_away: bool  # it could not be asked where to read
    note: str  # "" or that, with the time of what is shown
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too


class Details(Result):
    """The fields of an envelope that a list leaves out."""

    origin: str  # how it came: smtp, local or bounce
    client_address: str  # "" when it did not come by SMTP
    client_port: int
    helo: str
    tls: str  # "" without TLS
    login: str  # "" without authentication
    message_id: str  # "" when the message lacks one
    eight_bit: bool
    smtputf8: bool
    data: str  # where its data lies: inline (behind its envelope), log (behind an earlier one) or spool
    not_before: float  # wall clock, seconds; 0.0: at any time
    held_because: str  # "" when it is not held, or without a reason
    authentication: str = ""  # our own results: "spf=pass dkim=pass arc=none dmarc=pass"; "" if it was not checked


class ShownRecipient(Result):
    """A recipient that the message still has in the queue."""

    number: int
    address: str
    destination: str  # "" when it is not routed yet
    reply: str  # the last one; "" when there is none
    done: bool  # has its final verdict in this pass
    state: str  # as of a message (mailcore.mail_state), also when it is done
    until: float  # wall clock; 0.0 when the state has no end, or there is none
    why: str  # the operator's reason, "" when none was given
    since: float  # wall clock, of that state; 0.0 when it was not recorded, or there is none


class ShowPart(Result):
    """A part of what is known of a message: the first has all but the recipients, each further one a batch of them."""

    message: Item | UnsetType = UNSET
    envelope: Details | UnsetType = UNSET
    working: Progress | UnsetType | None = UNSET  # None: the message is not active
    explain: list[Reason] | UnsetType = UNSET
    changes: list[str] | UnsetType = UNSET  # names of the changes that its state allows
    manager_away: bool | UnsetType = UNSET  # it could not be asked where to read
    note: str | UnsetType = UNSET  # "" or that, with the time of what is shown
    recipients: list[ShownRecipient] | UnsetType = UNSET


class HistoryPart(History, kw_only=True):
    """The history of a message in the last part, which has ``done``; the parts before only report that work continues."""

    done: bool


class SearchPart(Result):
    """The hits since the part before; the last part has ``done`` and a note."""

    items: list[Hit]
    cursor: str | None  # where the next page begins; None: everything was searched
    examined: int  # records read
    done: bool
    manager_away: bool = False  # it could not be asked where to read
    unread_files: int = 0  # of events
    note: str | UnsetType = UNSET  # the parts that could not be searched, for a person; "" when all could
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too


class AgesPart(AgesTable, kw_only=True):
    """The progress of a count: only ``total`` and ``examined`` count before the last part, which has ``done``."""

    manager_away: bool = False  # it could not be asked where to read
    note: str  # "" or that, with the time of what is counted
    unanswered: str = ""  # the shards that did not answer, and why; it is in the note, too
    done: bool


class Headers(Result):
    """The header section of a message."""

    queue_id: str
    headers: list[list[str]]  # [name, value] each, unfolded and decoded; a line that is not a field has the name ""
    raw: str
    truncated: bool
    damage: str = ""  # why the data is not what was received; it is shown as it is


class DataPiece(Result):
    """A piece of a message's data, as received."""

    data: bytes
    offset: int
    size_bytes: int  # of all its data as stored
    more: bool
    damage: str = ""  # why this piece is not what was received; it is given as it is


_READ, _CHANGE, _INTERNAL = Access.READ, Access.CHANGE, Access.INTERNAL
_CONTROL, _MANAGER = Answerer.CONTROL, Answerer.MANAGER

OPERATIONS = (
    Operation("list", ListArguments, _READ, _CONTROL, "a page of the queue", ListPage),
    Operation(
        "show", ShowArguments, _READ, _CONTROL, "one message: item, why it waits, all recipients in parts", ShowPart
    ),
    Operation("explain", OneMessage, _READ, _CONTROL, "why it waits, wherever it is", Reasons),
    Operation(
        "history",
        OneMessage,
        _READ,
        _CONTROL,
        "all that is still known of it, also when it is finished",
        HistoryPart,
    ),
    Operation(
        "search",
        SearchArguments,
        _READ,
        _CONTROL,
        "messages in the queue, and those gone but not forgotten",
        SearchPart,
    ),
    Operation("headers", OneMessage, _READ, _CONTROL, "its header section, decoded", Headers),
    Operation("data", DataArguments, _CHANGE, _CONTROL, "a piece of its data, as received", DataPiece),
    Operation("ages", AgesArguments, _READ, _CONTROL, "messages by destination and age", AgesPart),
    Operation(
        "working", WorkingArguments, _READ, _MANAGER, "those of the messages that are in the active set", Working
    ),
    Operation("cut", Arguments, _INTERNAL, _MANAGER, "where browsing starts and ends in each lane", Cut),
)
