"""The settings: every limit of Waypost once, with its unit, default, bounds and the source of the default.

Values only: ``mailcore.config.load`` reads them from a file, and other code gets them as arguments. A unit is the last part of
a name; a setting that Postfix has keeps its Postfix name. The scheduler's parameters are defined in ``scheduler.parameters``
and taken from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.bounds import DAY_S, Bounds, Kind, choice, flag, number, text, texts, whole, wholes
from mailcore.config import values
from mailcore.config.arc import Arc
from mailcore.config.authenticity import Authenticity
from mailcore.config.bounce_settings import Bounce
from mailcore.config.certificates import Pair
from mailcore.config.client_auth import ClientAuth
from mailcore.config.client_bounds import ClientBounds
from mailcore.config.clients import Clients
from mailcore.config.dkim import DkimKey
from mailcore.config.dnsbl import Dnsbl
from mailcore.config.ehlo_keywords import DiscardsKeywords, KeywordLists, discarded_of_transport
from mailcore.config.esmtp import Esmtp
from mailcore.config.greylist import Greylist
from mailcore.config.lenient import Lenient
from mailcore.config.listeners import Auth, Certificate, Listener
from mailcore.config.maildrop import Maildrop
from mailcore.config.metrics import Metrics
from mailcore.config.milters import Milter, MilterUse
from mailcore.config.portal_metrics import PortalMetrics
from mailcore.config.protocol import (
    conversion_of_transport,
    fallback_of_transport,
    lmtp_transports,
    protocol_of_transport,
)
from mailcore.config.recipients import Recipients
from mailcore.config.rewriting import Rewriting
from mailcore.config.tls import Tls, TlsPolicy, level_of_transport
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, TRANSPORT_SCOPE

__all__ = [
    "DEFAULT_ROUTE", "DIRECTORIES", "HOME_DEFAULT", "SECTIONS", "SHIPPED_TRANSPORTS", "Bounce", "Control",
    "Deliverer", "Destination", "Esmtp", "Export", "Maildrop", "Metrics", "Portal", "Queue", "Receiver", "Relay",
    "Reports", "Scheduler", "Settings", "Supervisor", "Tls", "TlsPolicy", "Transport",
]  # fmt: skip


def parameter(scope: Mapping[str, Bounds], name: str) -> Any:
    """Defines a field by the scheduler's own table; a feedback stays text, in its one spelling."""
    bounds = scope[name]
    if bounds.kind is Kind.FEEDBACK:
        bounds = dataclasses.replace(bounds, default=str(bounds.default), reader=_feedback)
    return field(default=bounds.default, metadata={"bounds": bounds})


def _feedback(given: object) -> str:
    return str(Feedback.parse(given))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """[queue]: the log, the spool and the retry lanes."""

    segment_bytes: int = whole(32 << 20, 64 << 10, 1 << 30, "bytes", "size at which a lane begins a new segment")
    checkpoint_interval_s: float = number(1.0, 0.05, 60, "seconds", "time between two writes of the restart positions")
    commit_delay_ms: float = number(
        3.0, 0, 100, "milliseconds", "under load, how long a sync waits so that it covers more records"
    )
    inline_limit: int = whole(
        64 << 10, 0, 1 << 20, "bytes", "data up to this size is stored in the log, larger data in the spool"
    )
    reserve_bytes: int = whole(64 << 20, 0, 1 << 40, "bytes", "free disk space below which new mail gets 452")
    reserve_inodes: int = whole(
        1000, 0, 1 << 40, "inodes", "free inodes below which new mail gets 452, on a file system that limits them"
    )
    ballast_bytes: int = whole(
        16 << 20,
        1 << 20,
        1 << 40,
        "bytes",
        "disk space that is allocated in advance; when the disk is full, it is given back for delivery",
    )
    ballast_inodes: int = whole(
        128, 64, 100_000, "inodes", "empty files that are created in advance; they are given back like ballast_bytes"
    )
    lag_bytes_max: int = whole(
        8 << 30, 1 << 20, 1 << 50, "bytes", "a receiver answers 452 while more than this of its lane is unread"
    )
    retry_ladder_s: tuple[int, ...] = wholes(
        (1, 5, 30, 60, 300, 600, 1200, 2400, 4000), "waits of deferred mail; each has a retry lane", values.retry_ladder
    )
    undo_time_s: int = whole(3600, 60, 30 * DAY_S, "seconds", "how long a deletion can be undone")
    names_counted: int = whole(
        1000, 1, 100_000, "destinations", "number of destinations with their own counters; all others are aggregated"
    )
    suffix_bytes_max: int = whole(
        64 << 20,
        1 << 20,
        1 << 40,
        "bytes",
        "how much of the journal's end a start reads; the state of older messages is written again at its end",
    )
    compact_below: float = number(
        0.25, 0.0, 0.9, "of its records", "a sealed segment is rewritten when less than this share is still needed"
    )


@dataclass(frozen=True, kw_only=True)
class Receiver(ClientBounds, MilterUse, DiscardsKeywords):
    """[receiver]: the SMTP server."""

    listen: tuple[str, ...] = texts(
        ("127.0.0.1:2525",),
        "addresses and ports to listen on, an IPv6 address in brackets",
        values.endpoint,
        values.no_repeats,
    )
    processes: int = whole(1, 1, 64, "processes", "receiver processes that share the ports")
    hostname: str = text(
        "", "our name in the greeting and in Received", values.host_name, special={"": "the name of this host"}
    )
    message_size_limit: int = whole(
        52_428_800, 1024, 1 << 32, "bytes", "maximum message size, announced by SIZE; a larger message gets 552"
    )
    recipient_limit: int = whole(
        1000,
        1,
        1_000_000,
        "recipients",
        "maximum recipients of one message; further ones get 452 (RFC 5321 4.5.3.1.8: at least 100)",
    )
    command_line_limit: int = whole(
        2048, 512, 65_536, "bytes", "maximum length of a command line, as Postfix's line_length_limit"
    )
    error_limit: int = whole(
        20, 1, 1000, "errors", "errors in one session after which it gets 421, as Postfix's smtpd_hard_error_limit"
    )
    received_limit: int = whole(
        50, 1, 1000, "lines", "Received lines of a message that is refused as a loop, as Postfix's hopcount_limit"
    )
    tag_header: str = text(
        "",
        "header field whose value (its first 128 characters) reports group mail by, such as X-Campaign",
        values.field_name,
        special={"": "mail has no tags"},
    )
    idle_timeout_s: int = whole(
        300, 1, 3600, "seconds", "time without a byte after which a session gets 421 (RFC 5321 4.5.3.2.7)"
    )
    tls_certificate: str = text("", "PEM file with the certificate chain; STARTTLS is offered when it is set")
    tls_key: str = text("", "PEM file with the private key")


@dataclass(frozen=True, kw_only=True)
class Relay:
    """[relay]: the clients and domains that mail is accepted from and for."""

    networks: tuple[str, ...] = texts(
        ("127.0.0.0/8", "::1/128"),
        "networks of clients that may send to any domain",
        values.network,
        values.refuse_open_relay,
    )
    domains: tuple[str, ...] = texts(
        (),
        "recipient domains that mail is accepted for from any client; .example.org stands for all its subdomains",
        values.domain_pattern,
    )


@dataclass(frozen=True, kw_only=True)
class Deliverer:
    """[deliverer]: the SMTP client. Timeouts are the defaults of Postfix's smtp(8)."""

    processes: int = whole(1, 1, 64, "processes", "deliverer processes")
    hostname: str = text("", "our name in EHLO", values.host_name, special={"": "the name of this host"})
    concurrency: int = whole(500, 1, 10_000, "deliveries", "maximum concurrent deliveries of one process")
    connect_timeout_s: float = number(
        30, 0.1, 3600, "seconds", "timeout for the connection, as Postfix's smtp_connect_timeout"
    )
    greeting_timeout_s: float = number(
        300, 0.1, 3600, "seconds", "timeout for the greeting and EHLO, as Postfix's smtp_helo_timeout"
    )
    command_timeout_s: float = number(
        300,
        0.1,
        3600,
        "seconds",
        "timeout for the answers to MAIL and RCPT, as Postfix's smtp_mail_timeout and smtp_rcpt_timeout",
    )
    data_timeout_s: float = number(
        180,
        0.1,
        3600,
        "seconds",
        "timeout without progress while the message is sent, as Postfix's smtp_data_xfer_timeout",
    )
    final_timeout_s: float = number(
        600, 0.1, 3600, "seconds", "timeout for the answer to the whole message, as Postfix's smtp_data_done_timeout"
    )
    connection_idle_s: float = number(
        2.0,
        0.0,
        600,
        "seconds",
        "how long an unused connection is kept open, as Postfix's smtp_connection_cache_time_limit",
    )
    connections_idle_max: int = whole(
        100, 0, 10_000, "connections", "maximum unused connections one process keeps open"
    )
    connection_uses_max: int = whole(1000, 1, 1_000_000, "messages", "maximum messages over one connection")
    addresses_max: int = whole(
        5, 1, 100, "addresses", "maximum addresses tried for one delivery, as Postfix's smtp_mx_address_limit"
    )
    nameservers: tuple[str, ...] = texts(
        (),
        "name servers to ask, each an address or address:port",
        values.nameserver,
        special={"": "those of /etc/resolv.conf"},
    )
    port: int = whole(25, 1, 65_535, "", "TCP port of hosts found by MX")


@dataclass(frozen=True, kw_only=True)
class Control:
    """[control]: the control socket, which the command line and the portal use."""

    group: str = text(
        "",
        "a group whose members may use the control socket, beside root and the user of the daemon",
        values.group,
        special={"": "no group"},
    )
    clients_max: int = whole(200, 1, 10_000, "connections", "maximum concurrent connections")
    simulations_max: int = whole(
        2,
        0,
        100,
        "simulations",
        "maximum concurrent simulations, each a process of its own",
        special={0: "simulations are switched off"},
    )
    simulation_timeout_s: float = number(30.0, 1, 3600, "seconds", "time after which a simulation is ended")
    simulation_entries_max: int = whole(
        30_000,
        1_000,
        10_000_000,
        "deliveries",
        "maximum deliveries of one simulation; of a longer queue only a part is simulated",
    )


@dataclass(frozen=True, kw_only=True)
class Supervisor:
    """[supervisor]: starts the mail processes and restarts any that exit."""

    silent_s: float = number(
        60.0, 5, 3600, "seconds", "time without progress after which a process is killed and restarted"
    )


@dataclass(frozen=True, kw_only=True)
class Export:
    """[export]: the events for the reports. They are exported from the log before it is deleted, to `events` below `home`."""

    enabled: bool = flag(True, "export events; false: no events, no reports, and segments are deleted without waiting")
    interval_s: float = number(10.0, 0.1, 3600, "seconds", "time between two searches for sealed segments")
    cut_interval_s: float = number(
        3600.0,
        60,
        DAY_S,
        "seconds",
        "time after which, and at midnight, everything up to now is exported and the queue is counted",
    )
    window_interval_s: float = number(
        60.0, 1, DAY_S, "seconds", "time between two samples of the destinations' windows"
    )
    lag_bytes_max: int = whole(
        8 << 30,
        1 << 20,
        1 << 50,
        "bytes",
        "segments kept for the export; above this they are deleted, their events are lost, and this is logged",
    )
    keep_days: int = whole(400, 3, 36_500, "days", "how long events are kept")


@dataclass(frozen=True, kw_only=True)
class Portal(PortalMetrics):
    """[portal]: the web portal, which `./run` starts beside the core. The core itself reads none of these."""

    listen: str = text("127.0.0.1:8025", "address and port to listen on, an IPv6 address in brackets", values.endpoint)
    public_url: str = text(
        "",
        "address that browsers use if there is a proxy, such as https://waypost.example.org",
        special={"": "the address the portal listens on"},
    )
    hsts_preload: bool = flag(
        False, "with HTTPS, allow browsers to add the host to their preload list, which takes months to undo"
    )
    processes: int = whole(1, 1, 16, "processes", "portal processes that share the port")
    database_url: str = text(
        "",
        "postgresql://…; the environment variable DATABASE_URL overrides it",
        special={"": "an SQLite database below home"},
    )
    session_idle_s: int = whole(
        12 * 3600, 300, 30 * DAY_S, "seconds", "time without a request after which a person is signed out"
    )
    lockout_failures: int = whole(
        5, 2, 100, "attempts", "wrong passwords after which an account is locked for that client"
    )
    lockout_s: int = whole(900, 60, DAY_S, "seconds", "how long the account stays locked")
    require_totp: str = choice(
        "none",
        ("none", "administrators", "everybody"),  # lang: quoted
        "accounts that must sign in with TOTP; until it is set up they see no other page",
    )
    core_timeout_s: float = number(
        5.0, 0.5, 60, "seconds", "how long a page waits for the core before it shows that there is no answer"
    )
    change_timeout_s: float = number(20.0, 1, 300, "seconds", "how long a change waits for the core's answer")
    readers_max: int = whole(
        500, 1, 10_000, "pages", "maximum live pages open in one portal process; further ones try again later"
    )
    sample_days: int = whole(35, 1, 3650, "days", "how long the minute samples of the charts are kept")
    audit_days: int = whole(3650, 30, 36_500, "days", "how long the audit log is kept")


@dataclass(frozen=True, kw_only=True)
class Reports:
    """[reports]: the nightly reports, which `./run` makes beside the core. The core itself reads only `zone`."""

    broker_url: str = text(
        "",
        "address of a Redis server, redis://host:port/0; the environment variable REDIS_URL overrides it",
        values.broker_url,
        special={"": "./run starts one, with a socket below run_directory"},
    )
    spark_master: str = text(
        "local[*]", "where Spark runs: local[N], spark://host:port, yarn or k8s://…", values.spark_master
    )
    zone: str = text(
        "UTC", "time zone of a report's day and of the schedules' times; the portal may set another", values.zone
    )
    recipients: tuple[str, ...] = texts(
        (), "mail addresses that the report is sent to; the portal may set others", values.mailbox
    )
    sender: str = text(
        "", "From address of that mail", values.mailbox, special={"": "waypost@ and the name of this host"}
    )
    numbers: str = choice(
        "en",
        ("en", "de", "fr"),
        "format of numbers in reports: 1,234.5 or 1.234,5 or 1 234,5; the portal may set another",
    )
    timeout_s: int = whole(
        6 * 3600, 60, 7 * DAY_S, "seconds", "time after which a running report is ended and counts as failed"
    )
    retries: int = whole(3, 0, 20, "times", "how often a failed report is tried again")
    retry_wait_s: int = whole(
        900, 1, DAY_S, "seconds", "wait before the first retry; each further wait is twice as long"
    )
    catch_up_days: int = whole(
        7, 1, 400, "days", "how far back reports are made for days that have events and no report"
    )
    keep_days: int = whole(1100, 1, 36_500, "days", "how long the tables of a day are kept")
    keep: tuple[str, ...] = texts(
        ("senders:400", "recipients:400", "clients:400", "silver:30"),
        'tables with another time, each "TABLE:DAYS"; silver is the typed events that tables are made from',
        values.table_days,
    )
    keep_runs_days: int = whole(400, 1, 36_500, "days", "how long the portal keeps the list of runs and their logs")
    rows_shown_max: int = whole(200, 10, 10_000, "rows", "maximum rows of a table on the page; the download has more")
    download_rows_max: int = whole(
        200_000, 100, 10_000_000, "rows", "maximum rows of a table in a CSV or Parquet download"
    )


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """[scheduler]: parameters of all transports. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

    message_active_limit: int = parameter(GLOBAL_SCOPE, "message_active_limit")
    message_recipient_limit: int = parameter(GLOBAL_SCOPE, "message_recipient_limit")
    message_recipient_minimum: int = parameter(GLOBAL_SCOPE, "message_recipient_minimum")
    minimal_backoff_time: float = parameter(GLOBAL_SCOPE, "minimal_backoff_time")
    maximal_backoff_time: float = parameter(GLOBAL_SCOPE, "maximal_backoff_time")
    maximal_queue_lifetime: float = parameter(GLOBAL_SCOPE, "maximal_queue_lifetime")
    bounce_queue_lifetime: float = parameter(GLOBAL_SCOPE, "bounce_queue_lifetime")
    transport_retry_time: float = parameter(GLOBAL_SCOPE, "transport_retry_time")
    idle_destination_limit: int = parameter(GLOBAL_SCOPE, "idle_destination_limit")
    deferred_active_share: float = parameter(GLOBAL_SCOPE, "deferred_active_share")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """[transports.NAME.destinations."PATTERN"]: parameters that differ for some destinations of a transport."""

    initial_destination_concurrency: int = parameter(DESTINATION_SCOPE, "initial_destination_concurrency")
    destination_concurrency_limit: int = parameter(DESTINATION_SCOPE, "destination_concurrency_limit")
    destination_concurrency_positive_feedback: str = parameter(
        DESTINATION_SCOPE, "destination_concurrency_positive_feedback"
    )
    destination_concurrency_negative_feedback: str = parameter(
        DESTINATION_SCOPE, "destination_concurrency_negative_feedback"
    )
    destination_concurrency_failed_cohort_limit: int = parameter(
        DESTINATION_SCOPE, "destination_concurrency_failed_cohort_limit"
    )
    destination_rate_delay: float = parameter(DESTINATION_SCOPE, "destination_rate_delay")
    destination_recipient_limit: int = parameter(DESTINATION_SCOPE, "destination_recipient_limit")
    destination_concurrency_feedback_debug: bool = parameter(
        DESTINATION_SCOPE, "destination_concurrency_feedback_debug"
    )


@dataclass(frozen=True, kw_only=True)
class Transport(Destination):
    """[transports.NAME]: parameters of one transport. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

    process_limit: int = parameter(TRANSPORT_SCOPE, "process_limit")
    delivery_slot_cost: int = parameter(TRANSPORT_SCOPE, "delivery_slot_cost")
    delivery_slot_loan: int = parameter(TRANSPORT_SCOPE, "delivery_slot_loan")
    delivery_slot_discount: int = parameter(TRANSPORT_SCOPE, "delivery_slot_discount")
    minimum_delivery_slots: int = parameter(TRANSPORT_SCOPE, "minimum_delivery_slots")
    recipient_limit: int = parameter(TRANSPORT_SCOPE, "recipient_limit")
    extra_recipient_limit: int = parameter(TRANSPORT_SCOPE, "extra_recipient_limit")
    recipient_refill_limit: int = parameter(TRANSPORT_SCOPE, "recipient_refill_limit")
    recipient_refill_delay: float = parameter(TRANSPORT_SCOPE, "recipient_refill_delay")
    transport_rate_delay: float = parameter(TRANSPORT_SCOPE, "transport_rate_delay")
    tls: str = level_of_transport()
    protocol: str = protocol_of_transport()
    fallback_relay: tuple[str, ...] = fallback_of_transport()
    discard_ehlo_keywords: tuple[str, ...] = discarded_of_transport()
    mime_output_conversion: str = conversion_of_transport()
    destinations: dict[str, dict[str, Any]] = field(default_factory=dict)  # pattern -> the values set, of Destination


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The whole file. Paths are absolute."""

    home: Path
    queue_directory: Path
    spool_directory: Path
    run_directory: Path  # sockets
    log_directory: Path  # mail.log and mail.jsonl
    queue: Queue = field(default_factory=Queue)
    receiver: Receiver = field(default_factory=Receiver)
    relay: Relay = field(default_factory=Relay)
    authenticity: Authenticity = field(default_factory=Authenticity)
    recipients: Recipients = field(default_factory=Recipients)
    dnsbl: Dnsbl = field(default_factory=Dnsbl)
    greylist: Greylist = field(default_factory=Greylist)
    arc: Arc = field(default_factory=Arc)
    rewriting: Rewriting = field(default_factory=Rewriting)
    deliverer: Deliverer = field(default_factory=Deliverer)
    tls: Tls = field(default_factory=Tls)
    bounce: Bounce = field(default_factory=Bounce)
    esmtp: Esmtp = field(default_factory=Esmtp)
    lenient: Lenient = field(default_factory=Lenient)
    client_auth: ClientAuth = field(default_factory=ClientAuth)
    control: Control = field(default_factory=Control)
    supervisor: Supervisor = field(default_factory=Supervisor)
    export: Export = field(default_factory=Export)
    maildrop: Maildrop = field(default_factory=Maildrop)
    metrics: Metrics = field(default_factory=Metrics)
    portal: Portal = field(default_factory=Portal)
    reports: Reports = field(default_factory=Reports)
    scheduler: Scheduler = field(default_factory=Scheduler)
    transports: dict[str, Transport] = field(default_factory=dict)  # always has smtp, relay and bulk
    tls_policy: dict[str, TlsPolicy] = field(default_factory=dict)  # by pattern of next hops
    smtp_discard_ehlo_keywords: KeywordLists = field(
        default_factory=dict
    )  # by pattern of next hops or network of servers
    smtpd_discard_ehlo_keywords: KeywordLists = field(default_factory=dict)  # by network of clients
    routes: dict[str, str] = field(default_factory=dict)  # pattern -> "transport:next hop:port"; "*" is the default
    sender_routes: dict[str, str] = field(default_factory=dict)  # pattern of senders -> route, instead of that of "*"
    login_routes: dict[str, str] = field(default_factory=dict)  # login -> route, before those of senders
    auth: Auth = field(default_factory=Auth)
    clients: Clients = field(default_factory=Clients)
    listener: tuple[Listener, ...] = ()  # without those of ``receiver.listen``
    certificate: tuple[Certificate, ...] = ()  # without that of ``receiver``
    dkim: tuple[DkimKey, ...] = ()
    milter: tuple[Milter, ...] = ()
    # Parameters that the file sets: "scheduler.NAME", "transports.TRANSPORT.NAME". Two files with equal values are equal.
    written: tuple[str, ...] = field(default=(), compare=False)

    @property
    def all_listeners(self) -> tuple[Listener, ...]:
        """Returns all addresses that receivers listen on, those of ``[receiver] listen`` first."""
        receiver = self.receiver
        own: dict[str, Any] = {name: getattr(receiver, name) for name in ("milters", "discard_ehlo_keywords")}
        return (*(Listener(address=each, **own) for each in self.receiver.listen), *self.listener)

    @property
    def certificate_pairs(self) -> tuple[Pair, ...]:
        """Returns all certificates of the receivers; the first is for clients that ask for no name, or an unknown one."""
        receiver = self.receiver
        first = [Pair((), receiver.tls_certificate, receiver.tls_key)] if receiver.tls_certificate else []
        return (*first, *(Pair(each.names, each.certificate, each.key) for each in self.certificate))

    @property
    def lmtp_transports(self) -> frozenset[str]:
        """Returns the names of the transports that speak LMTP."""
        return lmtp_transports(self.transports)

    @property
    def users_file(self) -> Path:
        """Returns the file of the users that may log in."""
        return self.home / "users.jsonl"

    @property
    def sts_directory(self) -> Path | None:
        """Returns the directory of the MTA-STS policies that are kept; None if no next hop has that level."""
        levels = [each.tls for each in self.transports.values()] + [each.level for each in self.tls_policy.values()]
        return self.home / "mta-sts" if "mta-sts" in levels else None

    @property
    def events_directory(self) -> Path:
        """Returns the directory of the events that the reports are made from."""
        return self.home / "events"

    @property
    def identified_directories(self) -> dict[str, Path]:
        """Returns the directories that carry the identity of this Waypost (mailcore/queue/identity.py), by name."""
        directories = {"home": self.home, "queue": self.queue_directory, "spool": self.spool_directory}
        return directories | ({"events": self.events_directory} if self.export.enabled else {})

    @property
    def ballast_directories(self) -> list[str]:
        """Returns the directories whose disks have a ballast (mailcore/queue/ballast.py), the most important first."""
        return [str(self.identified_directories[name]) for name in BALLAST if name in self.identified_directories]

    @property
    def reports_directory(self) -> Path:
        """Returns the directory of the reports' tables."""
        return self.home / "reports"


SECTIONS: dict[str, type] = {
    "queue": Queue,
    "receiver": Receiver,
    "relay": Relay,
    "authenticity": Authenticity,
    "recipients": Recipients,
    "dnsbl": Dnsbl,
    "greylist": Greylist,
    "arc": Arc,
    "rewriting": Rewriting,
    "auth": Auth,
    "clients": Clients,
    "deliverer": Deliverer,
    "tls": Tls,
    "bounce": Bounce,
    "esmtp": Esmtp,
    "lenient": Lenient,
    "client_auth": ClientAuth,
    "control": Control,
    "supervisor": Supervisor,
    "export": Export,
    "maildrop": Maildrop,
    "metrics": Metrics,
    "portal": Portal,
    "reports": Reports,
    "scheduler": Scheduler,
}
SHIPPED_TRANSPORTS = ("smtp", "relay", "bulk")  # defined even when the file has no section for them
DEFAULT_ROUTE = "smtp"
DIRECTORIES = {  # key at the top of the file -> its default below home, and its content
    "queue_directory": ("queue", "the log: lanes, journal, restart positions"),
    "spool_directory": ("spool", "spool files; may be on a disk of its own"),
    "run_directory": ("run", "sockets"),
    "log_directory": ("log", "mail.log and mail.jsonl"),
}
HOME_DEFAULT = "var"
BALLAST = ("queue", "spool", "home", "events")  # of those on one disk, the first has the ballast
