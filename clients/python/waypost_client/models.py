"""The types of bodies and answers of the HTTP API.

Made by clients/python/generate.py from the OpenAPI document; do not edit it.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Accepted",
    "AcknowledgeBody",
    "Administered",
    "AgesPart",
    "AgesRow",
    "AlertFound",
    "AlertList",
    "AlertShown",
    "Amount",
    "Attachment",
    "Attempt",
    "AttemptVerdict",
    "AuditEntry",
    "AuditPage",
    "BounceQueued",
    "CertificateBody",
    "CertificateFacts",
    "ChangeBody",
    "ChangeList",
    "ChangeShown",
    "CheckBody",
    "CheckedChange",
    "CheckedChanges",
    "Child",
    "ChosenBody",
    "ClientEffects",
    "Code",
    "CountBody",
    "Deferred",
    "DestinationList",
    "DestinationShown",
    "Details",
    "Disk",
    "DkimFacts",
    "DkimRecord",
    "Done",
    "Event",
    "Events",
    "FailureList",
    "FailureShown",
    "Fallback",
    "Fault",
    "FileKept",
    "FileRemoved",
    "FilterBody",
    "Finished",
    "Found",
    "Hit",
    "HopEffects",
    "Host",
    "Item",
    "JournalPositions",
    "Keeper",
    "KeptFile",
    "KeptFiles",
    "KeptText",
    "KeptUse",
    "KeyFault",
    "KnownSetting",
    "KnownUser",
    "LanePositions",
    "LaneSize",
    "ListAtPart",
    "LockList",
    "LockShown",
    "LogLine",
    "LogLines",
    "MailMove",
    "MailUserBody",
    "MailUserPut",
    "MailUserRemoved",
    "MapBody",
    "MessageBody",
    "MessageFound",
    "MessagesPage",
    "MoveBody",
    "MoveWebhookBody",
    "Moved",
    "NewCertificateBody",
    "NewDkimBody",
    "NewMailUserBody",
    "NewUserBody",
    "NewWebhookBody",
    "NodeBody",
    "NodeOrdered",
    "Nodes",
    "NoticeList",
    "NoticeShown",
    "Oldest",
    "OldestThen",
    "Overview",
    "OwnToken",
    "ParameterShown",
    "PasswordBody",
    "PastItem",
    "PastMessage",
    "Person",
    "Placed",
    "Positions",
    "PredictionShown",
    "PreferencesBody",
    "QueueSize",
    "QueuedEffects",
    "Reason",
    "RecipientRow",
    "RecipientsPage",
    "Recovery",
    "RefusedClient",
    "RemoveFileBody",
    "RemoveMailUserBody",
    "Reply",
    "ReportFound",
    "ReportLine",
    "ReportList",
    "ReportSettings",
    "RequestBody",
    "Resolved",
    "ResumeBody",
    "Resumed",
    "Retired",
    "RoleBody",
    "RoleList",
    "RoleShown",
    "Route",
    "Routes",
    "RuleList",
    "RuleShown",
    "RunList",
    "RunShown",
    "ScheduleBody",
    "ScheduleShown",
    "ScopeParameters",
    "SeenNode",
    "SeenShard",
    "SeenStandby",
    "Segment",
    "Sent",
    "SetBody",
    "SettingChange",
    "SettingChangeBody",
    "SettingsBody",
    "SettingsChanged",
    "SettingsCheckBody",
    "SettingsEffects",
    "SettingsExport",
    "SettingsHistory",
    "SettingsKnown",
    "Settled",
    "SignatureChange",
    "SignatureEffects",
    "SilenceBody",
    "SilenceShown",
    "SizeAtPart",
    "StartChangeBody",
    "StartReportBody",
    "StateBefore",
    "StateShown",
    "StatedChange",
    "StopBody",
    "SuspendBody",
    "Suspended",
    "TableRows",
    "Tested",
    "TokenList",
    "TokenShown",
    "Trouble",
    "TunedLayer",
    "TuningChange",
    "TuningChanges",
    "UndoBody",
    "UnreachableHop",
    "Unsent",
    "UseBody",
    "UseDkimBody",
    "UserBody",
    "UserList",
    "UserShown",
    "Users",
    "WebhookBody",
    "WebhookDeleted",
    "WebhookList",
    "WebhookMade",
    "WebhookShown",
    "WebhookWhyBody",
    "WhatIfBody",
    "WhatIfChange",
    "WhyBody",
]


class Accepted(msgspec.Struct, kw_only=True, tag_field="event", tag="accepted"):
    """The message arrived."""

    sender: str
    size_bytes: int
    recipients: int
    client_address: str
    helo: str
    tls: str
    login: str
    message_id: str
    origin: str
    authentication: str = ""
    at: float


class AcknowledgeBody(msgspec.Struct, kw_only=True):
    """The reason."""

    why: str


class Administered(msgspec.Struct, kw_only=True, tag_field="event", tag="administrative"):
    """An operator ordered a change."""

    operation: str
    who: str
    why: str
    arguments: dict[str, Any]
    recipients: int | None = None
    at: float


class AgesPart(msgspec.Struct, kw_only=True):
    """The progress of a count: only ``total`` and ``examined`` count before the last part, which has ``done``."""

    buckets_s: list[int | None]
    rows: list[AgesRow]
    total: int
    counts: list[int] = []
    by_state: dict[str, int]
    oldest: Oldest | None
    as_of: float
    took_s: float
    examined: int
    manager_away: bool = False
    note: str
    unanswered: str = ""
    done: bool


class AgesRow(msgspec.Struct, kw_only=True):
    """The messages for one destination."""

    destination: str
    counts: list[int]
    total: int


class AlertFound(msgspec.Struct, kw_only=True):
    """One alert, its notices, and other alerts of its cause."""

    alert: AlertShown
    notices: list[NoticeShown]
    others: list[int]


class AlertList(msgspec.Struct, kw_only=True):
    """Alerts, newest first; the silences in force; and whether the rules are checked at all."""

    alerts: list[AlertShown]
    cursor: int | None
    silences: list[SilenceShown]
    watch_away: bool
    watch_seen_at: float | None


class AlertShown(msgspec.Struct, kw_only=True):
    """An alert. Times are wall clock, in seconds since 1970."""

    id: int
    node: str
    cause: str
    rule: str
    severity: str
    state: str
    summary: str
    detail: str
    link: str
    unknown: str
    began_at: float
    opened_at: float | None
    seen_at: float
    ended_at: float | None
    ended_because: str
    acknowledged_at: float | None
    acknowledged_by: str
    acknowledged_why: str
    silenced_until: float | None


class Amount(msgspec.Struct, kw_only=True):
    """A number of messages, and of their recipients."""

    messages: int
    recipients: int


class Attachment(msgspec.Struct, kw_only=True):
    """A file."""

    filename: str
    content_type: str | UnsetType = UNSET
    content: str


class Attempt(msgspec.Struct, kw_only=True, tag_field="event", tag="attempt"):
    """An attempt at delivery."""

    destination: str
    relay: str
    tls: str
    delays: list[float]
    verdicts: list[AttemptVerdict]
    verdicts_left_out: int
    tls_level: str = ""
    at: float


class AttemptVerdict(msgspec.Struct, kw_only=True):
    """The verdict for one recipient, of an attempt or without one."""

    number: int
    address: str
    status: str
    dsn: str
    reply: str


class AuditEntry(msgspec.Struct, kw_only=True):
    """One audited change."""

    id: int
    at: float
    node: str
    who: str
    token: str
    address: str
    action: str
    subject: str
    outcome: str
    words: str
    why: str
    before: Any
    after: Any


class AuditPage(msgspec.Struct, kw_only=True):
    """A page of entries, newest first."""

    entries: list[AuditEntry]
    cursor: int | None
    examined: int | None


class BounceQueued(msgspec.Struct, kw_only=True, tag_field="event", tag="bounce"):
    """A report about the message was made for its sender."""

    queue_id: str
    lane: str
    offset: int
    report: str = ""
    at: float


class CertificateBody(msgspec.Struct, kw_only=True):
    """A certificate that is handed in."""

    name: str
    certificate: str
    key: str | UnsetType = UNSET
    why: str


class CertificateFacts(msgspec.Struct, kw_only=True):
    """A certificate and the rest of its chain. Times are wall clock."""

    subject: str
    issuer: str
    names: list[str]
    not_before: float
    not_after: float
    fingerprint: str
    key_type: str
    chain: list[str]
    self_signed: bool = False
    has_key: bool = False
    warnings: list[str] = []


class ChangeBody(msgspec.Struct, kw_only=True):
    """One value. ``before``: the value that the caller saw; if another one is in force, nothing is changed."""

    parameter: str
    value: bool | int | float | str | None
    before: bool | int | float | str | UnsetType | None = UNSET


class ChangeList(msgspec.Struct, kw_only=True):
    """The latest changes, newest first."""

    changes: list[ChangeShown]


class ChangeShown(msgspec.Struct, kw_only=True):
    """A change to messages. Times are wall clock, in seconds since 1970."""

    tag: str
    operation: str
    phase: str
    abandoned: bool
    who: str
    why: str
    filter: dict[str, Any]
    named: bool
    route: str
    matched: int
    matched_recipients: int
    changed: int
    changed_recipients: int
    in_flight: int
    too_late: int
    undecided: int
    failed: int
    failures: dict[str, int]
    errors: dict[str, str]
    error: str
    begun_at: float
    ended_at: float | None
    undo_until: float | None
    undoes: str | None


class CheckBody(msgspec.Struct, kw_only=True):
    """Values of one scope."""

    scope: str
    changes: list[ChangeBody]


class CheckedChange(msgspec.Struct, kw_only=True):
    """A value that would be set. ``fault``: why the core would refuse it, "" if it would not."""

    parameter: str
    in_force: int | float | bool | str | None
    value: int | float | bool | str | None
    fault: str


class CheckedChanges(msgspec.Struct, kw_only=True):
    """Values that would be set; nothing was."""

    scope: str
    fault: str
    changes: list[CheckedChange]


class Child(msgspec.Struct, kw_only=True):
    """A process that the supervisor starts, or the supervisor itself."""

    pid: int | None
    started_at: float
    restarts: int


class ChosenBody(msgspec.Struct, kw_only=True):
    """A change to named messages."""

    operation: Literal["delete", "undelete", "hold", "release", "retry", "reroute", "bounce"]
    queue_ids: list[str]
    route: str | UnsetType | None = UNSET
    why: str


class ClientEffects(msgspec.Struct, kw_only=True):
    """The effects on clients, as far as the mail of the last week tells."""

    since: float
    examined: int
    complete: bool
    unexplained: int
    clients: list[RefusedClient]
    more: int


class Code(enum.StrEnum):
    """The kinds of errors that a program has to tell apart."""

    BUSY = "busy"
    CONFLICT = "conflict"
    FORBIDDEN = "forbidden"
    INTERNAL = "internal"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    OUTCOME_UNKNOWN = "outcome_unknown"
    UNAVAILABLE = "unavailable"


class CountBody(msgspec.Struct, kw_only=True):
    """A change to all messages that match; it is only counted."""

    operation: Literal["delete", "undelete", "hold", "release", "retry", "reroute", "bounce"]
    filter: FilterBody
    route: str | UnsetType | None = UNSET
    scheduled: bool | UnsetType = UNSET


class Deferred(msgspec.Struct, kw_only=True, tag_field="event", tag="deferred_until"):
    """The message was put into a retry lane."""

    lane: str
    due_at: float
    generation: int
    of_lane: bool = False
    at: float


class DestinationList(msgspec.Struct, kw_only=True):
    """Destinations: those in trouble first, then those with the most mail."""

    destinations: list[DestinationShown]
    patterns: list[DestinationShown]
    unnamed: int
    more: bool
    unanswered: str


class DestinationShown(msgspec.Struct, kw_only=True):
    """A destination. None: the core did not report it. Times are wall clock, in seconds since 1970."""

    name: str
    states: list[StateShown]
    in_trouble: bool
    queued: int | None
    messages: int | None
    window: int | None
    limit: int | None
    busy: int | None
    success_share: float | None
    site_failures: int | None
    delivered: int
    deferred: int
    bounced: int
    last_delivered_at: float | None
    replies: list[Reply]


class Details(msgspec.Struct, kw_only=True):
    """The fields of an envelope that a list leaves out."""

    origin: str
    client_address: str
    client_port: int
    helo: str
    tls: str
    login: str
    message_id: str
    eight_bit: bool
    smtputf8: bool
    data: str
    not_before: float
    held_because: str
    authentication: str = ""


class Disk(msgspec.Struct, kw_only=True):
    """A directory, and the free space of its disk."""

    what: str
    path: str
    total_bytes: int
    free_bytes: int
    reserve_bytes: int
    device: int
    free_inodes: int | None = None
    reserve_inodes: int = 0
    ballast_bytes: int = 0
    ballast_inodes: int = 0
    ballast_bytes_whole: int = 0
    ballast_inodes_whole: int = 0


class DkimFacts(msgspec.Struct, kw_only=True):
    """A DKIM key and its DNS record."""

    domain: str
    selector: str
    algorithm: str
    record_name: str
    record: str
    strings: list[str]
    zone_line: str


class DkimRecord(msgspec.Struct, kw_only=True):
    """The record of a key in the DNS, compared with the key."""

    file: str
    record_name: str
    record: str
    state: str
    about: str


class Done(msgspec.Struct, kw_only=True):
    """Says that it was done; False: there was nothing to do."""

    done: bool


class Event(msgspec.Struct, kw_only=True):
    """Says what became of one recipient. Times are wall clock, in seconds since 1970; a text that is unknown is ""."""

    id: str
    kind: str
    at: float
    queue_id: str
    number: int
    recipient: str
    recipient_domain: str
    sender: str
    sender_domain: str
    tag: str
    login: str
    size_bytes: int
    message_id: str = ""
    origin: str = ""
    client_address: str = ""
    destination: str = ""
    relay: str = ""
    tls: str = ""
    dsn: str = ""
    reply: str = ""
    delay_s: float = 0.0


class Events(msgspec.Struct, kw_only=True):
    """Events, those of one message in their order. There may be fewer than asked for, or none, and more now."""

    events: list[Event]
    cursor: str
    more: bool
    lost: list[str]
    unanswered: str = ""


class FailureList(msgspec.Struct, kw_only=True):
    """The last failures of a webhook, newest first."""

    failures: list[FailureShown]


class FailureShown(msgspec.Struct, kw_only=True):
    """A request that failed, or events that are gone."""

    at: float
    delivery: str
    attempt: int
    status: int
    duration_s: float
    words: str


class Fallback(msgspec.Struct, kw_only=True):
    """The fallback next hops of a transport, or of some of its destinations."""

    scope: str
    next_hops: list[str]
    line: int | None
    file: str = ""


class Fault(msgspec.Struct, kw_only=True):
    """An error as it is sent over a socket."""

    code: Code
    message: str
    argument: str = ""


class FileKept(msgspec.Struct, kw_only=True):
    """A file that is kept now; no setting uses it by that."""

    file: str
    facts: KeptFile | None
    request: str


class FileRemoved(msgspec.Struct, kw_only=True):
    """A file that this node does not keep any more."""

    file: str
    elsewhere: str


class FilterBody(msgspec.Struct, kw_only=True):
    """Selects messages as FilterQuery does."""

    sender: str | UnsetType = UNSET
    recipient: str | UnsetType = UNSET
    destination: str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    older_than_s: float | UnsetType = UNSET
    younger_than_s: float | UnsetType = UNSET
    larger_than_bytes: int | UnsetType = UNSET
    smaller_than_bytes: int | UnsetType = UNSET
    arrived_before: float | UnsetType = UNSET


class Finished(msgspec.Struct, kw_only=True, tag_field="event", tag="finished"):
    """The message left the queue."""

    how: str
    bounce: Placed | None
    at: float


class Found(msgspec.Struct, kw_only=True):
    """Messages that were found. There may be fewer than asked for, or none, and more with the next page."""

    items: list[Hit]
    cursor: str | None
    examined: int
    note: str


class Hit(msgspec.Struct, kw_only=True):
    """A message as a search shows it. ``state`` is as in ``Item``, or how the message ended: delivered, bounced,
    expired or deleted (then ``finished_at`` is set), or unknown.
    """

    queue_id: str
    at: float
    sender: str
    recipients: list[str]
    recipient_count: int
    message_id: str
    size_bytes: int
    state: str
    finished_at: float | None


class HopEffects(msgspec.Struct, kw_only=True):
    """The effects on next hops: those whose policy changes, and those that mail moves to."""

    concerned: int
    tried: int
    unreachable: list[UnreachableHop]
    not_tried: list[str]


class Host(msgspec.Struct, kw_only=True):
    """A host that takes mail for a next hop."""

    preference: int | None
    name: str
    addresses: list[str]


class Item(msgspec.Struct, kw_only=True):
    """A message as a list shows it."""

    queue_id: str
    lane: str
    offset: int
    generation: int
    state: str
    states: dict[str, int]
    active: bool
    sender: str
    recipients: list[str]
    recipient_count: int
    size_bytes: int
    arrived_at: float
    due_at: float
    attempts: int
    reason: str
    destinations: list[str]


class JournalPositions(msgspec.Struct, kw_only=True):
    """The journal, its positions, and its segments on disk; offsets and sizes in bytes."""

    suffix: int
    end: int
    durable: int
    suffix_bytes: int
    segments: list[Segment]
    segments_left_out: int
    garbage_prefix_bytes: int
    bytes_on_disk: int


class Keeper(enum.StrEnum):
    """Why a segment is not deleted yet."""

    ACTIVE = "active"
    ACTIVE_OR_OLDER_SEGMENT = "active or older segment"
    DAMAGE = "damage"
    DELETED = "deleted"
    EXPORT = "export"
    HELD = "held"
    NEWEST = "newest"
    NOTHING = "nothing"
    OLDER_SEGMENT = "older segment"
    RESTART_POSITIONS = "restart positions"
    UNREAD = "unread"
    WORKING_SUFFIX = "working suffix"


class KeptFile(msgspec.Struct, kw_only=True):
    """A kept file. ``name`` without the digest. A private key has its public facts only."""

    file: str
    kind: str
    name: str
    size_bytes: int
    at: float
    used: list[str]
    in_history: int = 0
    lines: int = 0
    certificate: CertificateFacts | None = None
    dkim: DkimFacts | None = None
    fault: str = ""


class KeptFiles(msgspec.Struct, kw_only=True):
    """Files that Waypost keeps, the newest of each name first. Of a private key, its public facts."""

    files: list[KeptFile]


class KeptText(msgspec.Struct, kw_only=True):
    """The text of a kept file that has nothing secret in it."""

    text: str


class KeptUse(msgspec.Struct, kw_only=True):
    """The changes for ``settings_change`` that use the file, or end its use."""

    changes: list[SettingChange]
    words: list[str] = []


class KeyFault(msgspec.Struct, kw_only=True):
    """A value that is refused: its key as dotted names, and why."""

    key: str
    reason: str


class KnownSetting(msgspec.Struct, kw_only=True):
    """A value that is set in one of the files or live, or is removed. ``value`` and ``origin`` are of the files."""

    key: list[str]
    value: Any
    origin: str
    below: Any = None
    fixed: str = ""
    tuned: list[TunedLayer] = []
    removed: list[str] = []


class KnownUser(msgspec.Struct, kw_only=True):
    """A user, without its verifier. None: the limit of [auth] is in force; 0: no limit."""

    name: str
    enabled: bool
    verifier: str
    senders: list[str]
    revision: str
    messages_per_hour: int | None = None
    recipients_per_hour: int | None = None


class LanePositions(msgspec.Struct, kw_only=True):
    """A lane, its positions, and its segments on disk; offsets and sizes in bytes."""

    lane: str
    interval_s: float | None
    runner: int
    end: int
    lag_bytes: int
    browse: int
    segments: list[Segment]
    segments_left_out: int
    garbage_prefix_bytes: int
    bytes_on_disk: int
    retired: Retired


class LaneSize(msgspec.Struct, kw_only=True):
    """A lane: what is in it, and the interval of its runner, in seconds; None: it passes once."""

    messages: int
    recipients: int
    interval_s: float | None


class ListAtPart(msgspec.Struct, kw_only=True):
    """A page of the queue at the moment."""

    done: bool
    time: float = 0.0
    complete: bool = False
    counted_at: float | None = None
    missing: int | None = None
    note: str = ""
    items: list[PastItem] = []
    cursor: str | None = None
    examined: int = 0


class LockList(msgspec.Struct, kw_only=True):
    """Recent wrong passwords, newest first."""

    locks: list[LockShown]


class LockShown(msgspec.Struct, kw_only=True):
    """Wrong passwords of a user from an address."""

    id: int
    user: str
    address: str
    failures: int
    last_at: float
    locked_until: float | None


class LogLine(msgspec.Struct, kw_only=True):
    """A line of mail.jsonl, or one in the same form out of events: its place, its level, and its values."""

    place: str
    level: str
    values: dict[str, Any]
    source: str = "file"


class LogLines(msgspec.Struct, kw_only=True):
    """The lines, oldest first. ``older``: before which place to look next, "" if there are none; ``newest``: after
    which.
    """

    lines: list[LogLine]
    older: str
    newest: str
    examined_bytes: int
    note: str = ""


class MailMove(msgspec.Struct, kw_only=True):
    """Queued recipients that go elsewhere after the change. Destinations, or what happens instead ("bounced: …")."""

    before: str
    after: str
    messages: int
    recipients: int
    bounces: bool


class MailUserBody(msgspec.Struct, kw_only=True):
    """Changes of a user; what is left out stays."""

    password: str | UnsetType = UNSET
    make_password: bool | UnsetType = UNSET
    scram: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    messages_per_hour: int | UnsetType | None = UNSET
    recipients_per_hour: int | UnsetType | None = UNSET
    why: str
    name: str
    revision: str | UnsetType = UNSET
    senders: list[str] | UnsetType = UNSET


class MailUserPut(msgspec.Struct, kw_only=True):
    """The user as it is now."""

    user: KnownUser
    password: str | None


class MailUserRemoved(msgspec.Struct, kw_only=True):
    """A user that is not there any more."""

    name: str


class MapBody(msgspec.Struct, kw_only=True):
    """A map that is handed in."""

    name: str
    place: Literal[
        "rewriting.virtual_alias_maps",
        "recipients.relay_recipient_maps",
        "rewriting.canonical_maps",
        "rewriting.sender_canonical_maps",
        "rewriting.recipient_canonical_maps",
        "rewriting.sender_bcc_maps",
        "rewriting.recipient_bcc_maps",
        "rewriting.header_checks",
        "route_maps.routes",
        "route_maps.sender_routes",
        "route_maps.login_routes",
        "route_maps.fallback_relay",
    ]
    text: str
    patterns: bool | UnsetType = UNSET
    why: str


class MessageBody(msgspec.Struct, kw_only=True):
    """A message: ``raw`` as it is, or its parts."""

    sender: str
    recipients: list[str]
    not_before: float | UnsetType | None = UNSET
    raw: str | UnsetType | None = UNSET
    from_: Person | UnsetType | None = msgspec.field(name="from", default=UNSET)
    to: list[Person] | UnsetType | None = UNSET
    cc: list[Person] | UnsetType | None = UNSET
    subject: str | UnsetType | None = UNSET
    text: str | UnsetType | None = UNSET
    html: str | UnsetType | None = UNSET
    attachments: list[Attachment] | UnsetType | None = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    variables: dict[str, dict[str, str]] | UnsetType | None = UNSET


class MessageFound(msgspec.Struct, kw_only=True):
    """One message, queued or finished. Times are wall clock, in seconds since 1970."""

    queue_id: str
    state: str
    message: Item | None
    envelope: Details | None
    waiting: list[Reason]
    changes: list[str]
    note: str
    recipients: list[RecipientRow]
    recipients_known: int
    more_recipients: int | None
    headers: list[list[str]]
    history: list[Accepted | Attempt | Settled | Deferred | Moved | BounceQueued | Administered | Finished]
    history_complete: bool
    history_since: float | None


class MessagesPage(msgspec.Struct, kw_only=True):
    """A page of messages. It may be shorter than asked for, or empty, and not the last."""

    items: list[Item]
    cursor: str | None
    examined: int
    notes: list[str]


class MoveBody(msgspec.Struct, kw_only=True):
    """A shard, and the node that is to have it."""

    shard: str
    node: str
    why: str


class MoveWebhookBody(msgspec.Struct, kw_only=True):
    """From where a webhook continues."""

    place: Literal["past", "oldest", "now"]
    why: str


class Moved(msgspec.Struct, kw_only=True, tag_field="event", tag="replaced"):
    """The message was put into any other lane."""

    lane: str
    due_at: float
    generation: int
    at: float


class NewCertificateBody(msgspec.Struct, kw_only=True):
    """A certificate that is made here and signs itself."""

    names: list[str]
    days: int | UnsetType = UNSET
    why: str


class NewDkimBody(msgspec.Struct, kw_only=True):
    """A DKIM key that is made here, and stays."""

    domain: str
    selector: str
    algorithm: Literal["rsa", "ed25519"] | UnsetType = UNSET
    why: str


class NewMailUserBody(msgspec.Struct, kw_only=True):
    """A new user, with a password that is given or made."""

    password: str | UnsetType = UNSET
    make_password: bool | UnsetType = UNSET
    scram: bool | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    messages_per_hour: int | UnsetType | None = UNSET
    recipients_per_hour: int | UnsetType | None = UNSET
    why: str
    name: str
    senders: list[str] | UnsetType = UNSET


class NewUserBody(msgspec.Struct, kw_only=True):
    """A new user."""

    username: str
    password: str
    role: Literal["", "viewer", "operator", "administrator"] | UnsetType = UNSET
    reads_bodies: bool | UnsetType = UNSET
    why: str


class NewWebhookBody(msgspec.Struct, kw_only=True):
    """A new webhook. It begins with what happens from now on."""

    name: str
    url: str
    kinds: list[Literal["accepted", "delivered", "deferred", "bounced", "expired", "deleted"]] | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    sender_domain: str | UnsetType = UNSET
    recipient_domain: str | UnsetType = UNSET
    login: str | UnsetType = UNSET
    why: str


class NodeBody(msgspec.Struct, kw_only=True):
    """A node."""

    node: str
    why: str


class NodeOrdered(msgspec.Struct, kw_only=True):
    """An order that is on two servers of the database; the nodes carry it out."""

    order: str
    node: str
    shard: str


class Nodes(msgspec.Struct, kw_only=True):
    """The nodes, as this one has seen them last. Where ``is_on`` is false, no database keeps the queue, and all else
    is empty. ``seen_s_ago`` and ``renewed_s_ago`` are by the database's clock at the time of the look, which was
    ``age_s`` ago.
    """

    is_on: bool
    node: str
    age_s: float | None
    is_current: bool
    fault: str
    server: str
    nodes: list[SeenNode]
    shards: list[SeenShard]
    standbys: list[SeenStandby] | None
    giver: str
    troubles: list[str] = []


class NoticeList(msgspec.Struct, kw_only=True):
    """Notices that wait, and the latest others."""

    waiting: list[NoticeShown]
    ended: list[NoticeShown]


class NoticeShown(msgspec.Struct, kw_only=True):
    """A notice about an alert to one target."""

    id: int
    alert: int | None
    kind: str
    channel: str
    target: str
    made_at: float
    attempts: int
    sent_at: float | None
    dropped_at: float | None
    words: str


class Oldest(msgspec.Struct, kw_only=True):
    """The message that has been queued for the longest time."""

    queue_id: str
    arrived_at: float
    sender: str
    destination: str
    state: str


class OldestThen(msgspec.Struct, kw_only=True):
    """The message that had been queued for the longest time."""

    queue_id: str
    arrived_at: float
    sender: str
    state: str


class Overview(msgspec.Struct, kw_only=True):
    """The state of the appliance. Times are wall clock, in seconds since 1970."""

    at: float
    manager_started_at: float
    stalled: str
    restored: str
    unanswered: str
    active_full: str
    tuned_damage: str
    counted_since: float
    counts: dict[str, int]
    queue: QueueSize
    trouble: list[Trouble]
    disks: list[Disk]
    processes: dict[str, Child]


class OwnToken(msgspec.Struct, kw_only=True):
    """The token that asks. Its user's role limits it beside its scopes."""

    name: str
    user: str
    role: str
    scopes: list[str]
    created_at: float
    expires_at: float


class ParameterShown(msgspec.Struct, kw_only=True):
    """A parameter and the value in force. ``until``: wall clock, in seconds since 1970; None: it lasts."""

    name: str
    kind: str
    unit: str
    low: float | None
    high: float | None
    allowed: str
    doc: str
    default: int | float | bool | str | None
    configured: int | float | bool | str | None
    value: int | float | bool | str | None
    origin: str
    from_scope: str | None
    until: float | None


class PasswordBody(msgspec.Struct, kw_only=True):
    """A new password."""

    password: str
    why: str


class PastItem(msgspec.Struct, kw_only=True):
    """A message as a list of a moment in the past shows it, without the fields that events lack."""

    queue_id: str
    lane: str
    generation: int
    state: str
    states: dict[str, int]
    sender: str
    recipients: list[str]
    recipient_count: int
    size_bytes: int
    arrived_at: float
    due_at: float
    attempts: int
    reason: str
    destinations: list[str]


class PastMessage(msgspec.Struct, kw_only=True):
    """The history of a message until a moment. Times are wall clock, in seconds since 1970."""

    queue_id: str
    at: float
    history: list[Accepted | Attempt | Settled | Deferred | Moved | BounceQueued | Administered | Finished]
    history_complete: bool
    later: int


class Person(msgspec.Struct, kw_only=True):
    """An address of a field, with the name to show."""

    address: str
    name: str | UnsetType = UNSET


class Placed(msgspec.Struct, kw_only=True):
    """The place of an envelope."""

    lane: str
    offset: int


class Positions(msgspec.Struct, kw_only=True):
    """Where the runners are, what is on disk and why, and what a start would cost."""

    sequence: int
    written_at: float
    age_s: float | None
    note: str
    lanes: list[LanePositions]
    journal: JournalPositions
    recovery: Recovery
    unanswered: str = ""


class PredictionShown(msgspec.Struct, kw_only=True):
    """A simulation with the values in force (``before``) and with the changed ones (``after``)."""

    id: int
    at: float
    who: str
    changes: list[dict[str, Any]]
    asked: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    assumptions: list[str]
    unknown: list[dict[str, Any]]
    unread_files: int


class PreferencesBody(msgspec.Struct, kw_only=True):
    """All preferences."""

    zone: str
    recipients: list[str]
    numbers: Literal["en", "de", "fr"]
    why: str


class QueueSize(msgspec.Struct, kw_only=True):
    """The size of the queue; deleted mail does not count."""

    messages: int
    recipients: int
    active: int
    in_flight: int
    destinations: int
    lanes: dict[str, LaneSize]


class QueuedEffects(msgspec.Struct, kw_only=True):
    """The effects on mail in the queue."""

    examined: int
    complete: bool
    messages: int
    recipients: int
    moves: list[MailMove]
    more: int


class Reason(msgspec.Struct, kw_only=True):
    """Why a group of a message's recipients waits. The numbers are those of the sentence; a reason has only some of
    them. Times are wall clock, in seconds since 1970.
    """

    state: str
    recipients: int
    sentence: str
    destination: str | UnsetType = UNSET
    transport: str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    reply: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    job: str | UnsetType = UNSET
    since: float | UnsetType | None = UNSET
    until: float | UnsetType | None = UNSET
    suspended_until: float | UnsetType | None = UNSET
    looked_at: float | UnsetType = UNSET
    busy: int | UnsetType = UNSET
    window: int | UnsetType = UNSET
    process_limit: int | UnsetType = UNSET
    capacity: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    entry: int | UnsetType = UNSET
    entries_ahead: int | UnsetType = UNSET
    entries_missing: int | UnsetType = UNSET
    slots_missing: int | UnsetType = UNSET
    messages_ahead: int | UnsetType = UNSET
    bytes_ahead: int | UnsetType = UNSET
    room: int | UnsetType = UNSET


class RecipientRow(msgspec.Struct, kw_only=True):
    """Holds a recipient as the page shows it."""

    number: int
    address: str
    state: str
    destination: str
    reply: str
    since: float = 0.0
    until: float = 0.0
    why: str = ""


class RecipientsPage(msgspec.Struct, kw_only=True):
    """A page of the recipients of a message."""

    recipients: list[RecipientRow]
    more: int | None


class Recovery(msgspec.Struct, kw_only=True):
    """The cost of a start now."""

    bytes: int
    records_estimate: int
    seconds_estimate: float
    messages: int | None
    sentence: str


class RefusedClient(msgspec.Struct, kw_only=True):
    """A client whose mail was accepted, and would be refused after the change."""

    client_address: str
    login: str
    reason: str
    messages: int
    last_at: float
    example: str
    certain: bool


class RemoveFileBody(msgspec.Struct, kw_only=True):
    """A file to remove."""

    file: str
    why: str


class RemoveMailUserBody(msgspec.Struct, kw_only=True):
    """A user to remove."""

    name: str
    revision: str | UnsetType = UNSET
    why: str


class Reply(msgspec.Struct, kw_only=True):
    """A reply of a next hop, or why there was none."""

    at: float
    reply: str
    status: str
    dsn: str
    relay: str
    times: int


class ReportFound(msgspec.Struct, kw_only=True):
    """A published report."""

    period: str
    start: str
    last: str
    made_at: float
    so_far: bool
    balances: bool | None
    summary: str
    balance: dict[str, Any]
    tables: list[str]
    deleted: list[str]


class ReportLine(msgspec.Struct, kw_only=True):
    """A line of the list of reports."""

    start: str
    last: str
    state: str
    words: str


class ReportList(msgspec.Struct, kw_only=True):
    """The reports of one kind of period, newest first."""

    period: str
    reports: list[ReportLine]


class ReportSettings(msgspec.Struct, kw_only=True):
    """The preferences in force, and the schedules."""

    zone: str
    recipients: list[str]
    numbers: str
    schedules: list[ScheduleShown]
    scheduler_runs: bool
    scheduler_seen_at: float | None


class RequestBody(msgspec.Struct, kw_only=True):
    """A request for a certificate. The key is made here, and stays."""

    names: list[str]
    why: str


class Resolved(msgspec.Struct, kw_only=True):
    """Where mail for an address would go; ``refused`` when it would go nowhere."""

    address: str
    transport: str
    destination: str
    next_hop: str
    matched: str
    refused: str
    hosts: list[Host]
    dns_error: str
    becomes: str = ""
    written: str = ""
    fallbacks: list[str] = []
    fallback_scope: str = ""
    fallback_written: str = ""


class ResumeBody(msgspec.Struct, kw_only=True):
    """The destination to resume."""

    destination: str
    why: str


class Resumed(msgspec.Struct, kw_only=True):
    """A destination that was resumed."""

    destination: str
    still_suspended_by: str | None
    unanswered: str


class Retired(msgspec.Struct, kw_only=True):
    """The retired segments of a lane: no part of it any more, they are kept for data of mail that waits elsewhere."""

    segments: int
    bytes: int
    needed_bytes: int | None
    unneeded_since: float
    oldest_at: float


class RoleBody(msgspec.Struct, kw_only=True):
    """Whether users of a role may read bodies."""

    reads_bodies: bool
    why: str


class RoleList(msgspec.Struct, kw_only=True):
    """The roles, the lowest first."""

    roles: list[RoleShown]


class RoleShown(msgspec.Struct, kw_only=True):
    """A role. Administrators may read bodies in any case."""

    name: str
    reads_bodies: bool
    users: int


class Route(msgspec.Struct, kw_only=True):
    """A row of the routes table."""

    pattern: str
    transport: str
    next_hop: str
    line: int | None
    becomes: str = ""
    file: str = ""


class Routes(msgspec.Struct, kw_only=True):
    """The routes table, in the order in which its rows count."""

    routes: list[Route]
    default: Route | None
    transports: list[str]
    more: int = 0
    fallbacks: list[Fallback] = []
    more_fallbacks: int = 0
    faults: list[str] = []


class RuleList(msgspec.Struct, kw_only=True):
    """All rules."""

    rules: list[RuleShown]


class RuleShown(msgspec.Struct, kw_only=True):
    """A rule, and when it was last checked."""

    name: str
    about: str
    off: bool
    checked_at: float | None
    tried_at: float | None
    causes: int
    unknown: str
    settings: dict[str, float]
    silenced_until: float | None


class RunList(msgspec.Struct, kw_only=True):
    """The latest runs, newest first."""

    runs: list[RunShown]


class RunShown(msgspec.Struct, kw_only=True):
    """A run. Times are wall clock, in seconds since 1970."""

    id: int
    day: str
    state: str
    who: str
    stage: str
    share: float
    words: str
    asked_at: float
    begun_at: float | None
    ended_at: float | None


class ScheduleBody(msgspec.Struct, kw_only=True):
    """A schedule."""

    at: str
    enabled: bool
    why: str


class ScheduleShown(msgspec.Struct, kw_only=True):
    """A nightly task. Times are wall clock, in seconds since 1970."""

    id: int
    name: str
    about: str
    at: str
    enabled: bool
    late: bool
    last_run_at: float | None
    next_at: float | None


class ScopeParameters(msgspec.Struct, kw_only=True):
    """The parameters of a scope."""

    scope: str
    transports: list[str]
    parameters: list[ParameterShown]


class SeenNode(msgspec.Struct, kw_only=True):
    """A node that has a row in the database, or is in."""

    name: str
    state: str
    alive: bool
    seen_s_ago: float | None
    since: float | None
    shards: list[str]
    is_in: bool
    address: str = ""
    troubles: list[str] = []


class SeenShard(msgspec.Struct, kw_only=True):
    """A shard. ``moves_to`` is the node that waits for it, ``placed`` the one that a person has given it to."""

    name: str
    number: int
    state: str
    node: str
    epoch: int
    renewed_s_ago: float
    placed: str = ""
    moves_to: str = ""
    handed_over: bool = False


class SeenStandby(msgspec.Struct, kw_only=True):
    """A standby of the database that is connected."""

    name: str
    address: str
    state: str
    sync_state: str
    behind_bytes: int | None
    behind_s: float | None


class Segment(msgspec.Struct, kw_only=True):
    """A segment on disk."""

    base: int
    bytes: int
    sealed: bool
    messages: int | None
    live: int | None
    kept_by: Keeper
    sentence: str


class Sent(msgspec.Struct, kw_only=True):
    """A message that is in the queue; with variables, one for each recipient."""

    queue_ids: list[str]
    recipients: int
    size_bytes: int
    unsent: list[Unsent]


class SetBody(msgspec.Struct, kw_only=True):
    """Values of one scope, and how long they hold: until a time, for a number of seconds, or permanently."""

    scope: str
    changes: list[ChangeBody]
    until: float | UnsetType | None = UNSET
    for_s: float | UnsetType | None = UNSET
    prediction: int | UnsetType | None = UNSET
    why: str


class SettingChange(msgspec.Struct, kw_only=True):
    """One value: ``["relay", "domains"]``; None undoes a change, so that the configuration file or the default
    counts again. ``removed``: the value or row of the configuration file at the key does not count, until None
    undoes that.
    """

    key: list[str]
    value: Any = None
    removed: bool = False


class SettingChangeBody(msgspec.Struct, kw_only=True):
    """One setting."""

    key: list[str]
    value: Any
    removed: bool | UnsetType = UNSET


class SettingsBody(msgspec.Struct, kw_only=True):
    """Settings to change, with the revision that their author saw."""

    changes: list[SettingChangeBody] | UnsetType | None = UNSET
    toml: str | UnsetType | None = UNSET
    to: str | UnsetType | None = UNSET
    revision: str
    why: str


class SettingsChanged(msgspec.Struct, kw_only=True):
    """The effect of a change that was made, or is only checked."""

    faults: list[KeyFault]
    changed: list[StatedChange]
    restarts: list[str]
    revision: str
    applied: bool


class SettingsCheckBody(msgspec.Struct, kw_only=True):
    """Settings to change, made together or not at all: one by one, as TOML, or a state to return to; one of these."""

    changes: list[SettingChangeBody] | UnsetType | None = UNSET
    toml: str | UnsetType | None = UNSET
    to: str | UnsetType | None = UNSET


class SettingsEffects(msgspec.Struct, kw_only=True):
    """The effects that a change would have. A part is None where the change does not concern it."""

    queued: QueuedEffects | None
    clients: ClientEffects | None
    hops: HopEffects | None
    not_judged: list[str]
    took_s: float
    signatures: SignatureEffects | None = None
    error: str = ""


class SettingsExport(msgspec.Struct, kw_only=True):
    """All settings that can be managed, without places, files, keys and users."""

    revision: str
    toml: str


class SettingsHistory(msgspec.Struct, kw_only=True):
    """The states, newest first."""

    states: list[StateBefore]
    faults: list[Fault] = []


class SettingsKnown(msgspec.Struct, kw_only=True):
    """All values that are set, with the revision of the files. Other settings have their defaults."""

    manages: bool
    source: str
    revision: str
    settings: list[KnownSetting]
    in_force: bool
    waiting: list[str] = []
    fault: str = ""
    reload: dict[str, Any] = {}
    nodes: str = ""


class Settled(msgspec.Struct, kw_only=True, tag_field="event", tag="settled"):
    """Recipients ended without an attempt: they were deleted, returned by an operator or expired, or have no route."""

    destination: str
    verdicts: list[AttemptVerdict]
    verdicts_left_out: int
    at: float


class SignatureChange(msgspec.Struct, kw_only=True):
    """Queued messages of a domain that would leave with other DKIM signatures. Keys by the names of their records."""

    domain: str
    before: list[str]
    after: list[str]
    messages: int


class SignatureEffects(msgspec.Struct, kw_only=True):
    """The effects on the DKIM signatures of mail in the queue, which is signed when it is delivered."""

    examined: int
    complete: bool
    unread: int
    messages: int
    changes: list[SignatureChange]
    more: int


class SilenceBody(msgspec.Struct, kw_only=True):
    """How long nothing is sent."""

    for_s: float
    why: str


class SilenceShown(msgspec.Struct, kw_only=True):
    """A silence: nothing is sent about a cause, or about any cause of a rule, until a time."""

    id: int
    rule: str
    cause: str
    node: str
    until: float
    made_at: float
    made_by: str
    why: str


class SizeAtPart(msgspec.Struct, kw_only=True):
    """The size of the queue at the moment. Deleted mail that could still be undeleted is counted apart."""

    done: bool
    time: float = 0.0
    complete: bool = False
    counted_at: float | None = None
    missing: int | None = None
    note: str = ""
    messages: int = 0
    recipients: int = 0
    deleted: int = 0
    lanes: dict[str, Amount] = {}
    by_state: dict[str, int] = {}
    states: dict[str, int] = {}
    destinations: dict[str, int] = {}
    others: int = 0
    untried: int = 0
    oldest: OldestThen | None = None


class StartChangeBody(msgspec.Struct, kw_only=True):
    """The start of a counted change."""

    matched: int
    why: str


class StartReportBody(msgspec.Struct, kw_only=True):
    """The day to make a report of."""

    day: str
    mail: bool | UnsetType = UNSET
    why: str


class StateBefore(msgspec.Struct, kw_only=True):
    """A state of the managed settings, and the change that made it."""

    revision: str
    at: float
    who: str
    why: str
    changed: list[StatedChange]
    node: str = ""


class StateShown(msgspec.Struct, kw_only=True):
    """A state of a destination, and its end; None: without an end, or it is not known."""

    state: str
    until: float | None


class StatedChange(msgspec.Struct, kw_only=True):
    """A key whose value becomes another."""

    key: str
    before: Any
    after: Any


class StopBody(msgspec.Struct, kw_only=True):
    """The reason to stop a run."""

    why: str


class SuspendBody(msgspec.Struct, kw_only=True):
    """A suspension: until a time, for a number of seconds, or without an end if neither is given."""

    destination: str
    until: float | UnsetType | None = UNSET
    for_s: float | UnsetType | None = UNSET
    why: str


class Suspended(msgspec.Struct, kw_only=True):
    """A destination that was suspended."""

    destination: str
    until: float | None


class TableRows(msgspec.Struct, kw_only=True):
    """Rows of a table, in the order in which they are stored."""

    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
    count: int
    cursor: int | None


class Tested(msgspec.Struct, kw_only=True):
    """The number of targets that get a test."""

    targets: int


class TokenList(msgspec.Struct, kw_only=True):
    """Tokens, newest first."""

    tokens: list[TokenShown]
    cursor: int | None


class TokenShown(msgspec.Struct, kw_only=True):
    """A token, without its text."""

    id: int
    user: str
    name: str
    beginning: str
    scopes: list[str]
    state: str
    created_at: float
    expires_at: float
    revoked_at: float | None
    last_used_at: float | None
    last_address: str


class Trouble(msgspec.Struct, kw_only=True):
    """A destination that is dead, suspended or failing."""

    name: str
    states: list[str]
    queued: int | None
    reason: str


class TunedLayer(msgspec.Struct, kw_only=True):
    """A value that was set live: it counts above the files."""

    value: Any
    until: float | None = None


class TuningChange(msgspec.Struct, kw_only=True):
    """A change of a parameter that was made in the portal or by the API."""

    id: int
    at: float
    who: str
    batch: str
    scope: str
    parameter: str
    before: int | float | bool | str | None
    value: int | float | bool | str | None
    until: float | None
    why: str
    outcome: str
    words: str


class TuningChanges(msgspec.Struct, kw_only=True):
    """Changes of parameters, newest first."""

    changes: list[TuningChange]
    cursor: int | None = None


class UndoBody(msgspec.Struct, kw_only=True):
    """The reason to undo a delete."""

    why: str


class UnreachableHop(msgspec.Struct, kw_only=True):
    """A next hop that could not be reached as the settings demand after the change."""

    destination: str
    policy: str
    reason: str
    now: str
    queued: int
    week: int


class Unsent(msgspec.Struct, kw_only=True):
    """A recipient whose message is not in the queue; with the code outcome_unknown, it may be."""

    recipient: str
    code: Code
    message: str


class UseBody(msgspec.Struct, kw_only=True):
    """Where a kept file is to be used, or not any more."""

    file: str
    place: list[str] | UnsetType = UNSET
    names: list[str] | UnsetType = UNSET
    patterns: bool | UnsetType = UNSET
    remove: bool | UnsetType = UNSET


class UseDkimBody(msgspec.Struct, kw_only=True):
    """A DKIM key with which mail is to be signed."""

    file: str
    subdomains: bool | UnsetType = UNSET
    unpublished: bool | UnsetType = UNSET


class UserBody(msgspec.Struct, kw_only=True):
    """Changes of a user; what is left out stays."""

    username: str | UnsetType = UNSET
    first_name: str | UnsetType = UNSET
    last_name: str | UnsetType = UNSET
    role: Literal["", "viewer", "operator", "administrator"] | UnsetType = UNSET
    reads_bodies: bool | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    why: str


class UserList(msgspec.Struct, kw_only=True):
    """Users, in the order in which they were made."""

    users: list[UserShown]
    cursor: int | None


class UserShown(msgspec.Struct, kw_only=True):
    """A user. Times are wall clock, in seconds since 1970."""

    id: int
    username: str
    first_name: str
    last_name: str
    role: str
    reads_bodies: bool
    active: bool
    has_totp: bool
    has_second_factor: bool
    linked: bool
    last_login: float | None


class Users(msgspec.Struct, kw_only=True):
    """All users, with the limits of [auth]. ``nodes``: why this node has other users than the database of the nodes,
    or may have.
    """

    users: list[KnownUser]
    messages_per_hour: int
    recipients_per_hour: int
    mechanisms: str
    listeners: list[str]
    faults: list[str] = []
    nodes: str = ""


class WebhookBody(msgspec.Struct, kw_only=True):
    """Changes of a webhook; what is left out stays. It continues where it is."""

    name: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    kinds: list[Literal["accepted", "delivered", "deferred", "bounced", "expired", "deleted"]] | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    sender_domain: str | UnsetType = UNSET
    recipient_domain: str | UnsetType = UNSET
    login: str | UnsetType = UNSET
    why: str


class WebhookDeleted(msgspec.Struct, kw_only=True):
    """A webhook that is not there any more."""

    id: int


class WebhookList(msgspec.Struct, kw_only=True):
    """All webhooks, by name."""

    webhooks: list[WebhookShown]


class WebhookMade(msgspec.Struct, kw_only=True):
    """A webhook, and the secret with which its requests are signed."""

    webhook: WebhookShown
    secret: str | None


class WebhookShown(msgspec.Struct, kw_only=True):
    """A webhook. Times are wall clock, in seconds since 1970."""

    id: int
    name: str
    host: str
    url: str | None
    kinds: list[str]
    tag: str
    sender_domain: str
    recipient_domain: str
    login: str
    state: str
    words: str
    lost: str
    lag_s: float | None
    failing_since: float | None
    next_try_at: float
    sent_events: int
    sent_requests: int
    failed_requests: int
    sent_at: float | None
    test_under_way: bool
    test_at: float | None
    test_good: bool
    test_words: str
    made_at: float
    made_by: str


class WebhookWhyBody(msgspec.Struct, kw_only=True):
    """The reason."""

    why: str


class WhatIfBody(msgspec.Struct, kw_only=True):
    """The values to try, in one scope, and what is simulated."""

    scope: str
    changes: list[WhatIfChange]
    duration_s: float | UnsetType = UNSET
    since_s: float | UnsetType = UNSET
    arrivals: bool | UnsetType = UNSET


class WhatIfChange(msgspec.Struct, kw_only=True):
    """A value as it would be set."""

    parameter: str
    value: bool | int | float | str | None


class WhyBody(msgspec.Struct, kw_only=True):
    """The reason."""

    why: str
