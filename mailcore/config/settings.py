"""The settings: every limit of Waypost once, with its unit, default, bounds and where the default comes from.

Values only. They are read from a file by ``mailcore.config.load`` and handed on as arguments; nothing here opens a file.
Units stand in the name, last; Postfix's names are kept where Postfix has the setting. What the scheduler goes by is
defined in its own table of parameters, and taken from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.config import values
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, TRANSPORT_SCOPE, Bounds, Kind

__all__ = [
    "DEFAULT_ROUTE",
    "DIRECTORIES",
    "HOME_DEFAULT",
    "SECTIONS",
    "SHIPPED_TRANSPORTS",
    "Control",
    "Deliverer",
    "Destination",
    "Export",
    "Portal",
    "Queue",
    "Receiver",
    "Relay",
    "Reports",
    "Scheduler",
    "Settings",
    "Supervisor",
    "Transport",
]

DAY_S = 86_400


def number(default: float, low: float, high: float, doc: str) -> Any:
    """A bounded number; int where the default is one. The bound is part of the setting and printed in its reference."""
    return field(default=default, metadata={"low": low, "high": high, "doc": doc})


def text(default: str, doc: str, choices: tuple[str, ...] = (), check: Callable[[str], str] | None = None) -> Any:
    """``check`` sees what is not empty, and returns it in its one spelling."""
    return field(default=default, metadata={"doc": doc, "choices": choices, "check": check})


def texts(
    default: tuple[Any, ...],
    doc: str,
    check: Callable[[str], str] | None = None,
    whole: Callable[[tuple[Any, ...]], object] | None = None,
) -> Any:
    """``check`` sees each element, ``whole`` all of them."""
    return field(default=default, metadata={"doc": doc, "check": check, "whole": whole})


def flag(default: bool, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


def parameter(scope: Mapping[str, Bounds], name: str) -> Any:
    """A parameter of the scheduler, as its own table has it; a feedback stays text, in its one spelling."""
    bounds = scope[name]
    doc = f"{bounds.unit}; {bounds.doc}" if bounds.unit in ("seconds", "percent") else bounds.doc
    if bounds.kind is Kind.FEEDBACK:
        metadata = {"doc": doc, "choices": (), "check": _feedback, "allowed": str(bounds)}
        return field(default=str(bounds.default), metadata=metadata)
    return field(default=bounds.default, metadata={"low": bounds.low, "high": bounds.high, "doc": doc, "choices": ()})


def _feedback(given: str) -> str:
    return str(Feedback.parse(given))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """[queue]: the log, the spool and the runners."""

    segment_bytes: int = number(32 << 20, 64 << 10, 1 << 30, "a lane begins a new segment beyond this size")
    checkpoint_interval_s: float = number(1.0, 0.05, 60, "how often restart positions are written")
    commit_delay_ms: float = number(3.0, 0, 100, "under load, a sync waits this long for company")
    inline_limit: int = number(
        64 << 10, 0, 1 << 20, "data up to this size (bytes) lies in the log, bigger data in the spool"
    )
    reserve_bytes: int = number(
        64 << 20, 0, 1 << 40, "kept free for delivery and its records; below it new mail gets 452"
    )
    lag_bytes_max: int = number(8 << 30, 1 << 20, 1 << 50, "a lane with more than this unread answers 452")
    retry_ladder_s: tuple[int, ...] = texts(
        (1, 5, 30, 60, 300, 600, 1200, 2400, 4000), "one retry lane each", whole=values.retry_ladder
    )
    undo_time_s: int = number(3600, 60, 30 * DAY_S, "how long a delete can be undone")
    names_counted: int = number(1000, 1, 100_000, "destinations counted by name; the rest is one sum")
    suffix_bytes_max: int = number(
        64 << 20, 1 << 20, 1 << 40, "of the journal that a start reads; what began before is stated anew at its end"
    )
    compact_below: float = number(0.25, 0.0, 0.9, "a sealed segment with less than this share alive is written anew")


@dataclass(frozen=True, kw_only=True)
class Receiver:
    """[receiver]: the SMTP server."""

    listen: tuple[str, ...] = texts(
        ("127.0.0.1:2525",), "address:port, IPv6 in brackets", values.endpoint, values.no_repeats
    )
    processes: int = number(1, 1, 64, "receiver processes sharing the port")
    hostname: str = text(
        "", "our name in the greeting and in Received; empty: this host's name", check=values.host_name
    )
    message_size_limit: int = number(52_428_800, 1024, 1 << 32, "bytes; announced by SIZE, more gets 552")
    recipient_limit: int = number(
        1000, 1, 1_000_000, "recipients of one message, then 452 (RFC 5321 4.5.3.1.8: at least 100)"
    )
    connections_max: int = number(1000, 1, 60_000, "connections at once in one process, then 421")
    connections_per_client_max: int = number(
        50, 1, 60_000, "as Postfix's smtpd_client_connection_count_limit, per process"
    )
    command_line_limit: int = number(2048, 512, 65_536, "bytes of one command line, as Postfix's line_length_limit")
    error_limit: int = number(20, 1, 1000, "errors of one session, then 421, as Postfix's smtpd_hard_error_limit")
    received_limit: int = number(50, 1, 1000, "Received lines, then it is a loop (Postfix's hopcount_limit)")
    idle_timeout_s: int = number(300, 1, 3600, "no byte for so long: 421 (RFC 5321 4.5.3.2.7)")
    tls_certificate: str = text("", "PEM file with the chain; STARTTLS is offered when it is set")
    tls_key: str = text("", "PEM file with the private key")


@dataclass(frozen=True, kw_only=True)
class Relay:
    """[relay]: who may send where."""

    networks: tuple[str, ...] = texts(
        ("127.0.0.0/8", "::1/128"),
        "client networks that may send to anywhere",
        values.network,
        values.refuse_open_relay,
    )
    domains: tuple[str, ...] = texts(
        (), "recipient domains accepted from everybody; .example.org is all below it", values.domain_pattern
    )


@dataclass(frozen=True, kw_only=True)
class Deliverer:
    """[deliverer]: the SMTP client. Time-outs are Postfix's smtp(8) defaults."""

    processes: int = number(1, 1, 64, "deliverer processes")
    hostname: str = text("", "our name in EHLO; empty: this host's name", check=values.host_name)
    concurrency: int = number(500, 1, 10_000, "deliveries at once in one process")
    connect_timeout_s: float = number(30, 0.1, 3600, "smtp_connect_timeout")
    greeting_timeout_s: float = number(300, 0.1, 3600, "smtp_helo_timeout")
    command_timeout_s: float = number(300, 0.1, 3600, "smtp_mail_timeout, smtp_rcpt_timeout")
    data_timeout_s: float = number(180, 0.1, 3600, "smtp_data_xfer_timeout: no progress for so long")
    final_timeout_s: float = number(600, 0.1, 3600, "smtp_data_done_timeout")
    connection_idle_s: float = number(
        2.0, 0.0, 600, "a kept connection is closed after this, smtp_connection_cache_time_limit"
    )
    connections_idle_max: int = number(100, 0, 10_000, "kept connections in one process")
    connection_uses_max: int = number(1000, 1, 1_000_000, "messages over one connection")
    addresses_max: int = number(5, 1, 100, "addresses tried for one delivery, smtp_mx_address_limit")
    nameservers: tuple[str, ...] = texts(
        (), "address or address:port; empty: those of /etc/resolv.conf", values.nameserver
    )
    port: int = number(25, 1, 65_535, "of hosts found by MX")


@dataclass(frozen=True, kw_only=True)
class Control:
    """[control]: the socket of the command line and the portal."""

    group: str = text(
        "",
        "its members may connect and change things, as root and the daemon's own user may; empty: nobody else",
        check=values.group,
    )
    clients_max: int = number(200, 1, 10_000, "connections at once")
    simulations_max: int = number(
        2, 0, 100, "simulations (what would happen) at once, each a process of its own; 0: none"
    )
    simulation_timeout_s: float = number(30.0, 1, 3600, "a simulation that takes longer is ended")
    simulation_entries_max: int = number(
        30_000, 1_000, 10_000_000, "deliveries of one simulation; of more queued mail a part is simulated"
    )


@dataclass(frozen=True, kw_only=True)
class Supervisor:
    """[supervisor]: what starts the processes of the core and starts them again."""

    silent_s: float = number(
        60.0, 5, 3600, "a process whose work has stood still for so long hangs: it is killed and started again"
    )


@dataclass(frozen=True, kw_only=True)
class Export:
    """[export]: events for the reports, made of what the log says before it is deleted; they lie in events, below home."""

    enabled: bool = flag(True, "false: no events, no reports, and no segment waits for either")
    interval_s: float = number(10.0, 0.1, 3600, "how often sealed segments are looked for")
    cut_interval_s: float = number(
        3600.0, 60, DAY_S, "how often, and at midnight, all up to then is exported and what is queued is counted"
    )
    window_interval_s: float = number(60.0, 1, DAY_S, "how often the destinations' windows are sampled")
    lag_bytes_max: int = number(
        8 << 30, 1 << 20, 1 << 50, "kept for the export; beyond it segments go, their events are lost, and it is logged"
    )
    keep_days: int = number(400, 3, 36_500, "how long events are kept")


@dataclass(frozen=True, kw_only=True)
class Portal:
    """[portal]: the web portal, which ./run starts beside the core. The core itself reads nothing of it."""

    listen: str = text("127.0.0.1:8025", "address:port, IPv6 in brackets", check=values.endpoint)
    public_url: str = text(
        "", "as browsers reach it through a proxy, https://waypost.example.org; empty: by the address it listens on"
    )
    processes: int = number(1, 1, 16, "portal processes sharing the port")
    database_url: str = text(
        "", "postgresql://…; empty: SQLite below home; the environment's DATABASE_URL goes before it"
    )
    session_idle_s: int = number(12 * 3600, 300, 30 * DAY_S, "signed out after so long without a page")
    lockout_failures: int = number(5, 2, 100, "wrong passwords, then the account is locked for that client")
    lockout_s: int = number(900, 60, DAY_S, "how long it stays locked")
    require_totp: str = text(
        "none",
        "who must sign in with TOTP: they see no other page before it is set up",
        choices=("none", "administrators", "everybody"),
    )
    core_timeout_s: float = number(5.0, 0.5, 60, "a page waits so long for the core's answer, then says so")
    change_timeout_s: float = number(20.0, 1, 300, "a change waits so long for the core's answer")
    readers_max: int = number(500, 1, 10_000, "live pages open at once, of each portal process; more try again later")
    sample_days: int = number(35, 1, 3650, "how long minute samples of the live lines are kept")
    audit_days: int = number(3650, 30, 36_500, "how long the audit is kept")


@dataclass(frozen=True, kw_only=True)
class Reports:
    """[reports]: the nightly reports, made beside the core by what ./run starts. The core itself reads the zone of it."""

    broker_url: str = text(
        "",
        "redis://host:port/0 of a Redis; empty: ./run starts one on a socket below run_directory; "
        "the environment's REDIS_URL goes before it",
        check=values.broker_url,
    )
    spark_master: str = text(
        "local[*]", "where Spark runs: local[N], spark://host:port, yarn or k8s://…", check=values.spark_master
    )
    zone: str = text(
        "UTC", "a day of the reports begins at midnight there; the portal may set another", check=values.zone
    )
    recipients: tuple[str, ...] = texts((), "who gets the report by mail; the portal may set others", values.mailbox)
    sender: str = text("", "From of the mail; empty: waypost@ and our own host name", check=values.mailbox)
    numbers: str = text(
        "en",
        "how reports and their mail write numbers and dates: 1,234.5 or 1.234,5 or 1 234,5; the portal may set another",
        choices=("en", "de", "fr"),
    )
    timeout_s: int = number(6 * 3600, 60, 7 * DAY_S, "a report that takes longer is ended, and counts as failed")
    retries: int = number(3, 0, 20, "how often a report that failed is tried again")
    retry_wait_s: int = number(900, 1, DAY_S, "before the first of them; each further wait is twice as long")
    catch_up_days: int = number(7, 1, 400, "so many days back, what has events and no report gets one, too")
    keep_days: int = number(1100, 1, 36_500, "how long the tables of a day are kept")
    keep: tuple[str, ...] = texts(
        ("senders:400", "recipients:400", "clients:400", "silver:30"),
        '"TABLE:DAYS", where it is another time; silver: the events, typed, that tables are made from',
        values.table_days,
    )
    keep_runs_days: int = number(400, 1, 36_500, "how long the portal remembers when each was made, and its log")
    rows_shown_max: int = number(200, 10, 10_000, "rows of a table on the page; the download has more")
    download_rows_max: int = number(200_000, 100, 10_000_000, "rows of a table in a CSV or Parquet download")


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """[scheduler]: what holds for all transports. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

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
    """[transports.NAME.destinations."PATTERN"]: what is different for some destinations of a transport."""

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
    """[transports.NAME]: what holds for one transport. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

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
    tls: str = text("may", "STARTTLS: never, when offered, or else defer", ("none", "may", "encrypt"))
    destinations: dict[str, dict[str, Any]] = field(default_factory=dict)  # pattern -> what is set, of Destination


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
    deliverer: Deliverer = field(default_factory=Deliverer)
    control: Control = field(default_factory=Control)
    supervisor: Supervisor = field(default_factory=Supervisor)
    export: Export = field(default_factory=Export)
    portal: Portal = field(default_factory=Portal)
    reports: Reports = field(default_factory=Reports)
    scheduler: Scheduler = field(default_factory=Scheduler)
    transports: dict[str, Transport] = field(default_factory=dict)  # always has smtp, relay and bulk
    routes: dict[str, str] = field(default_factory=dict)  # pattern -> "transport:next hop:port"; "*" is the default

    @property
    def events_directory(self) -> Path:
        """What the reports are made of."""
        return self.home / "events"

    @property
    def reports_directory(self) -> Path:
        """The tables of the reports."""
        return self.home / "reports"


SECTIONS: dict[str, type] = {
    "queue": Queue,
    "receiver": Receiver,
    "relay": Relay,
    "deliverer": Deliverer,
    "control": Control,
    "supervisor": Supervisor,
    "export": Export,
    "portal": Portal,
    "reports": Reports,
    "scheduler": Scheduler,
}
SHIPPED_TRANSPORTS = ("smtp", "relay", "bulk")  # DESIGN section 4 speaks of them; the issue ships them
DEFAULT_ROUTE = "smtp"
DIRECTORIES = {  # key at the top of the file -> its default below home, and what lies there
    "queue_directory": ("queue", "the log: lanes, journal, restart positions"),
    "spool_directory": ("spool", "spool files; may be a disk of its own"),
    "run_directory": ("run", "sockets"),
    "log_directory": ("log", "mail.log and mail.jsonl"),
}
HOME_DEFAULT = "var"
