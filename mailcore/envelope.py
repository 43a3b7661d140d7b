"""The words every room shares: Envelope, Recipient, Verdict and where a message's data lies.

Values only: no I/O, no clock, no settings. Everything here is stored in the log as MessagePack arrays, so a field is only
ever added at the end, with a default.
"""

from __future__ import annotations

import enum

import msgspec

__all__ = ["Aside", "AsideKind", "DataPlace", "Envelope", "Options", "Origin", "Recipient", "Status", "Verdict"]

# Parameters of MAIL or RCPT that have no field of their own: keyword in upper case and value ("" without one), in the order
# in which the client gave them. mailcore.esmtp has the list of parameters.
Options = tuple[tuple[str, str], ...]


class Origin(enum.IntEnum):
    """Where a message came from."""

    SMTP = 0
    LOCAL = 1  # injected by the operator
    BOUNCE = 2  # made by us about another message; a bounce never bounces


class Status(enum.IntEnum):
    """The result of one attempt for one recipient (an outcome is a value, never an exception)."""

    DELIVERED = 0
    DEFERRED = 1
    BOUNCED = 2  # refused for good
    EXPIRED = 3  # deferred until the queue lifetime was over
    DELETED = 4  # by an operator


class AsideKind(enum.IntEnum):
    """Why a recipient is not tried with the others of its message."""

    DEFERRED = 0  # its next try is due later than that of another recipient
    HELD = 1  # until an operator releases it
    DELAYED = 2  # an operator's time, before which it is not tried
    DELETED = 3  # can be undeleted until a time


class Aside(msgspec.Struct, frozen=True, array_like=True):
    """Says that a recipient is not tried now, and since when, until when and why. Times are wall clock, in seconds.

    The queue lifetime does not pass for a recipient that an operator put aside: ``age_s`` is the message's age at that time.
    """

    kind: AsideKind
    until: float = 0.0  # due, or deleted permanently; 0.0 of what is held
    age_s: float = 0.0
    why: str = ""  # the operator's reason
    at: float = 0.0  # since when
    before: Aside | None = None  # restored by a release or an undelete; None: it is due then


class Recipient(msgspec.Struct, frozen=True, array_like=True):
    """One recipient of a message.

    ``number`` is the recipient's place in the message as received. It is the same in all generations, so that finished
    recipients can be added up over generations, also after a rewrite (law: fold-by-queue-id).
    """

    number: int
    address: str  # as given in RCPT TO, without the angle brackets
    destination: str = ""  # "transport:next hop" under which it was last counted; "" while not yet routed
    route: str = ""  # an operator's reroute, "transport:next hop"; overrides the routes table
    reply: str = ""  # the last reply that deferred it, "" before the first attempt
    options: Options = ()  # parameters of RCPT
    aside: Aside | None = None  # None: it is due when the message is
    paused_s: int = 0  # of the message's age, the seconds that do not count for this recipient


class DataPlace(enum.IntEnum):
    """Where the data of a message lies."""

    INLINE = 0  # in the ENVELOPE record, behind the envelope
    SPOOL = 1  # in the spool file of that queue id
    LOG = 2  # in the ENVELOPE record of an earlier generation: ``data_lane``, ``data_record``


class Envelope(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message's envelope, immutable once written; a retry writes another with the next generation.

    Times are wall-clock seconds since 1970 (UTC). ``recipients`` holds at most ``RECIPIENTS_PER_RECORD``; the others lie
    in RECIPIENTS records of the same lane, in front of this one, at the offsets in ``batches``.
    """

    queue_id: str
    generation: int  # 0 as received, +1 with each replacement
    sender: str  # MAIL FROM without brackets; "" for bounces
    recipients: tuple[Recipient, ...]
    recipient_count: int  # all of them, those in batches included
    batches: tuple[int, ...] = ()  # lane offsets of RECIPIENTS records
    arrived_at: float
    due_at: float = 0.0  # when the lane it rests in lets it go; 0 is at once
    attempts: int = 0  # passes made so far
    size_bytes: int  # of the data as on the wire, without the final dot
    data: DataPlace
    data_offset: int = 0  # in the spool file, or of the lane; an inline message's data begins behind its envelope
    origin: Origin = Origin.SMTP
    client_address: str = ""
    client_port: int = 0
    helo: str = ""
    server_address: str = ""
    tls: str = ""  # "TLSv1.3 TLS_AES_256_GCM_SHA384", "" in the clear
    login: str = ""
    eight_bit: bool = False  # BODY=8BITMIME
    smtputf8: bool = False
    message_id: str = ""  # header field Message-ID, "" when there is none
    held_because: str = ""  # an operator's reason, while in the hold or deleted lane
    not_before: float = 0.0  # scheduled mail: goes down the lanes until then
    age_s: float = 0.0  # time it spent with us up to this writing, added up from waits that no clock jump can stretch
    resting: dict[str, int] = {}  # destination -> recipients it is counted with; "" for what is not routed or not named
    numbers_used: int = 0  # recipients it ever had: what those added later are numbered from; 0: recipient_count
    written_at: float = 0.0  # when a replacement came to rest: held, deleted or deferred since; 0: as received
    held_before: str | None = None  # in the deleted lane: the reason it was held for until then; None: it was not held
    options: Options = ()  # parameters of MAIL
    aside: dict[str, int] = {}  # name of an AsideKind in lower case -> its recipients; kinds without any are left out
    first_due_at: float = 0.0  # when all recipients are aside: the time of the first; it goes down the lanes until then
    tag: str = ""  # value of the header field receiver.tag_header, as ``mailcore/tag.py`` takes it
    data_sums: bytes = b""  # checksums of the data's blocks (mailcore.log.data_blocks); b"" of data of an older version
    spool_bytes: int = 0  # size of the spool file; 0: inline, or written by an older version
    delay_warned: bool = False  # its sender was warned of the delay; copied by every rewrite
    login_method: str = ""  # of ``login``: PLAIN, LOGIN or SCRAM-SHA-256; "" without one, or of an older version
    client_name: str = ""  # of ``client_address``: verified, or as a listed host says; "": unknown
    original_client: str = ""  # "name[address]" that a content filter names with XFORWARD; "" without it
    original_queue_id: str = ""  # of the message in the server before the filter, by XFORWARD
    authentication: str = ""  # results of our evaluation: "spf=pass dkim=pass arc=none dmarc=pass"; "" without one
    # Of ``login``: patterns of the domains that its sender addresses have and we have DKIM keys for; no other author's mail is
    # signed. None: every domain, as without a login.
    author_domains: tuple[str, ...] | None = None
    data_lane: str = ""  # of data in the log: the lane of its record; "" otherwise
    data_record: int = -1  # lane offset of that record; the data itself begins at ``data_offset``


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """The result for one recipient: delivered, deferred or bounced, with the reply that says so."""

    number: int  # Recipient.number
    status: Status
    dsn: str  # enhanced status code, RFC 3463: "2.0.0"
    # The remote's reply, or our own text (mailcore.remote_reply tells them apart); control characters are escaped where it is
    # printed.
    reply: str
    # The host that took the mail without offering DSN, although its sender asked for a notice of success: "name[address]". The
    # notice is then ours to send (RFC 3461 5.2.2). "" otherwise.
    relayed_to: str = ""
    at: int = 0  # of a verdict that a report is owed for: the last attempt, wall clock, seconds; 0: it is in the record


RECIPIENTS_PER_RECORD = (
    1_000  # bounds a RECIPIENTS record: a list of any length is read and written in batches of this size
)
