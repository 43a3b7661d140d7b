"""The columns of the event files below ``home/events``, and which kind of event fills which columns.

A record of the log becomes one row, or several: an ``attempt`` is one recipient of one transaction. ``(lane, offset, part)``
names a row of its kind permanently, so a row that is read twice is counted once. A record of the journal may be rows of
several kinds: of a message that was passed on while its client waited, ``accepted``, ``attempt`` and ``finished``. Every
recipient that enters (by ``accepted``, or in the ``arguments`` of an ``order`` add_recipients) leaves by exactly one
``attempt`` that is not deferred. A deleted recipient leaves when the time for undelete is over; until then it is queued. The
export and the report pipeline share this file and nothing else; it imports nothing of ours, so it can be sent to a Spark
cluster.

Files: ``events/dt=YYYY-MM-DD/LANE.FROM.parquet``; dt is the UTC day of the rows, LANE.FROM the lane and the offset in
it at which the exported stretch begins. A file whose name begins with a dot or an underscore is not complete. Each file's
metadata has "waypost.lane", "waypost.from", "waypost.to", and "waypost.damaged": the damage in the stretch, a JSON list of
[offset, end, what]. ``events/cuts/TIME.json`` has a cut: how far each lane was exported, and the queue at that time as
``messages``, ``recipients``, and ``checksum``, the sum over messages of crc32(queue_id) * recipients, modulo 2^64. Two cuts
agree with the events between them in recipients and in that sum, in which each message counts separately. ``counted`` has, by
lane, ``since``, ``at`` and the COUNTERS of the rows that were exported from offset ``since`` up to ``at``, counted while they
were written: two cuts with the same ``since`` agree with the rows in the files between their two ``at``.
"""

from __future__ import annotations

__all__ = ["CHECKSUM_WRAPS", "COLUMNS", "COUNTERS", "FIELDS", "KINDS", "ROUTED", "STATUSES", "VERSION"]

VERSION = 1  # in each file's metadata as "waypost.events"; a change of COLUMNS that is more than an addition raises it

# Every column may be null but the first six. Types: string, int (32 bit), long (64 bit), double, bool, strings (a list).
COLUMNS: dict[str, str] = {
    "lane": "string",  # incoming.N, local, retry.N (accepted: scheduled mail handed in), journal, windows
    "offset": "long",  # of the record, in its lane; of windows the time in milliseconds
    "part": "int",  # 0, 1, … of the rows that one record became
    "at": "double",  # wall clock, seconds since 1970 (UTC)
    "kind": "string",  # one of KINDS
    "queue_id": "string",  # "" where there is none: refused, parameter, window
    # accepted; part 0 says all of the message and its first recipients, further parts only more recipients
    "sender": "string",  # "" of a bounce
    "size_bytes": "long",  # of the message; also of attempt, 0 of an end without one
    "recipient_count": "int",  # accepted: of the message; attempt: of the transaction, in its part 0 only
    "recipients": "strings",  # accepted: addresses, at most 1 000 a row; their numbers start at first_number
    "first_number": "int",
    "origin": "string",  # smtp, local (injected), bounce
    "client_address": "string",  # also of refused
    "helo": "string",  # also of refused
    "login": "string",
    "message_id": "string",
    "tls": "string",  # "TLSv1.3 TLS_AES_256_GCM_SHA384", "" in the clear; of accepted, attempt, refused
    # ESMTP options of accepted, as JSON: {"": {KEYWORD: value} of MAIL, "NUMBER": {KEYWORD: value} of that RCPT}; null: none
    "options": "string",
    "authentication": "string",  # results of our own check: "spf=pass dkim=pass arc=none dmarc=pass"; "" without one
    # attempt
    "number": "int",  # of the recipient in its message
    "status": "string",  # one of STATUSES
    "dsn": "string",  # enhanced status code, "2.0.0"
    "reply": "string",  # the remote's, or our own words; of refused, too
    "destination": "string",  # "transport:next hop"; also of window
    "relay": "string",  # host[address]:port
    "delay_a": "double",  # seconds, Postfix's delays=a/b/c/d: before the manager,
    "delay_b": "double",  # in the queue manager,
    "delay_c": "double",  # making the connection,
    "delay_d": "double",  # transmitting
    "generation": "int",
    "recipient_domain": "string",  # in lower case; "" where it is unknown
    "sender_domain": "string",  # in lower case, "" of a bounce
    "source_address": "string",  # of our end of the connection; "" when no host was reached
    "tls_verified": "bool",  # the next hop's certificate was checked, as the level demands
    # attempt: the level, ": " and its reason if there is one; "may: sent in the clear: …" after a failed handshake
    "tls_level": "string",
    "tag": "string",  # of accepted, attempt: value of the header field receiver.tag_header; "" without
    # finished: why "" or "deleted"; replaced: into which lane, due when; order: an operator's change
    "why": "string",
    "to_lane": "string",
    "due_at": "double",
    "operation": "string",  # hold, release, delete, undelete, reroute, ..., set, suspend, resume
    "who": "string",
    "arguments": "string",  # JSON
    # refused at SMTP time
    "stage": "string",  # CONNECT, EHLO, MAIL, RCPT, DATA
    "recipient": "string",  # also of attempt, as sender and login are; null in files of earlier versions
    # window: sampled while a destination has mail or is dead
    "window": "double",
    "busy": "int",
    "queued": "int",
    "dead_until": "double",  # 0: not dead
}

# Kind by kind: its columns beside lane, offset, part, at, kind and queue_id, in the order in which the export has them.
FIELDS: dict[str, tuple[str, ...]] = {
    "accepted": (
        "sender", "size_bytes", "recipient_count", "recipients", "first_number", "origin", "client_address", "helo", "login",
        "message_id", "tls", "options", "tag", "authentication",
    ),
    "attempt": (
        "recipient_count", "number", "status", "dsn", "reply", "destination", "relay", "tls", "delay_a", "delay_b", "delay_c",
        "delay_d", "generation", "recipient_domain", "sender_domain", "source_address", "tls_verified", "tag",
        "size_bytes", "tls_level", "recipient", "sender", "login",
    ),
    "finished": ("generation", "why"),
    "replaced": ("generation", "to_lane", "due_at"),
    "order": ("operation", "who", "why", "arguments"),
    "refused": ("sender", "client_address", "helo", "tls", "reply", "stage", "recipient"),
    "window": ("destination", "window", "busy", "queued", "dead_until"),
}  # fmt: skip
KINDS = tuple(FIELDS)
# Results of an attempt for one recipient; all except deferred are final.
STATUSES = ("delivered", "deferred", "bounced", "expired", "deleted")
# The sums of the exported rows of a lane, as cuts have them. A counter that is 0 may be missing.
COUNTERS = (
    "messages",  # accepted, rows of part 0
    "accepted",  # recipients of accepted rows
    "bytes",  # size_bytes of accepted rows
    "added",  # recipients of orders add_recipients
    *STATUSES,  # attempts by status
    "refused",
    "rows",  # of all kinds
    # The sum over attempts of crc32("OFFSET PART DESTINATION RECIPIENT_DOMAIN"); of those that ROUTED counts
    "routes",
    # The sum over rows of crc32("OFFSET PART QUEUE_ID KIND"), of an attempt crc32("OFFSET PART QUEUE_ID NUMBER STATUS").
    "checksum",
)
# Beside the COUNTERS: attempts that "routes" includes. A version that did not know that sum left out the attempts it exported,
# so the sum says something only if as many attempts were routed as were exported.
ROUTED = "routed"
CHECKSUM_WRAPS = 1 << 64  # checksums are modulo this, as Spark's sum of a long is
