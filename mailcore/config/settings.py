"""The settings: every limit of Waypost once, with its unit, default, bounds and the source of the default.

Values only: ``mailcore.config.load`` reads them from a file, and other code gets them as arguments. The files beside this one
define the sections, and this one puts them together. A unit is the last part of a name; a setting that Postfix has keeps its
Postfix name. The scheduler's parameters are defined in ``scheduler.parameters`` and taken from there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.config.alerts import Alerts
from mailcore.config.arc import Arc
from mailcore.config.authenticity import Authenticity
from mailcore.config.bounce_settings import Bounce
from mailcore.config.certificates import Pair
from mailcore.config.client_auth import ClientAuth
from mailcore.config.clients import Clients
from mailcore.config.control import Control
from mailcore.config.core import Core
from mailcore.config.deliverer import Deliverer
from mailcore.config.dkim import DkimKey
from mailcore.config.dnsbl import Dnsbl
from mailcore.config.ehlo_keywords import KeywordLists
from mailcore.config.esmtp import Esmtp
from mailcore.config.export import Export
from mailcore.config.greylist import Greylist
from mailcore.config.lenient import Lenient
from mailcore.config.listeners import Auth, Certificate, Listener
from mailcore.config.maildrop import Maildrop
from mailcore.config.metrics import Metrics
from mailcore.config.milters import Milter
from mailcore.config.nodes import Nodes
from mailcore.config.oidc import Oidc
from mailcore.config.portal import Portal
from mailcore.config.protocol import lmtp_transports
from mailcore.config.queue import Queue
from mailcore.config.receiver import Receiver
from mailcore.config.recipients import Recipients
from mailcore.config.relay import Relay
from mailcore.config.reports import Reports
from mailcore.config.rewriting import Rewriting
from mailcore.config.route_maps import RouteMaps
from mailcore.config.supervisor import Supervisor
from mailcore.config.tls import DANE, Tls, TlsPolicy
from mailcore.config.tlsrpt import TlsRpt
from mailcore.config.traces import Traces
from mailcore.config.transports import Destination, Scheduler, Transport

__all__ = [
    "DEFAULT_ROUTE", "DIRECTORIES", "HOME_DEFAULT", "SECTIONS", "SHIPPED_TRANSPORTS", "Bounce", "Control",
    "Core", "Deliverer", "Destination", "Esmtp", "Export", "Maildrop", "Metrics", "Portal", "Queue", "Receiver", "Relay",
    "Reports", "Scheduler", "Settings", "Supervisor", "Tls", "TlsPolicy", "Transport", "shard_place",
    "shares_in",
]  # fmt: skip


def shares_in(run_directory: Path) -> Path:
    """Returns the directory in which the managers of a node's shards meet."""
    return run_directory / "shares"


def shard_place(directory: Path, number: int) -> Path:
    """Returns the place of a shard beside what is in ``directory``."""
    return directory / "shards" / f"{number:02}"


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
    route_maps: RouteMaps = field(default_factory=RouteMaps)
    deliverer: Deliverer = field(default_factory=Deliverer)
    tls: Tls = field(default_factory=Tls)
    tlsrpt: TlsRpt = field(default_factory=TlsRpt)
    bounce: Bounce = field(default_factory=Bounce)
    esmtp: Esmtp = field(default_factory=Esmtp)
    lenient: Lenient = field(default_factory=Lenient)
    client_auth: ClientAuth = field(default_factory=ClientAuth)
    control: Control = field(default_factory=Control)
    core: Core = field(default_factory=Core)
    supervisor: Supervisor = field(default_factory=Supervisor)
    export: Export = field(default_factory=Export)
    maildrop: Maildrop = field(default_factory=Maildrop)
    metrics: Metrics = field(default_factory=Metrics)
    nodes: Nodes = field(default_factory=Nodes)
    traces: Traces = field(default_factory=Traces)
    portal: Portal = field(default_factory=Portal)
    oidc: Oidc = field(default_factory=Oidc)
    reports: Reports = field(default_factory=Reports)
    alerts: Alerts = field(default_factory=Alerts)
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
    source: str = field(default="", compare=False)  # absolute path of the configuration file
    shard: int | None = None  # of one of several shards, its number (``shards``); None: the queue is alone

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
    def dane_levels(self) -> tuple[str, ...]:
        """Returns the tables with a level of DANE, as "[transports.smtp]" and "[tls_policy] example.org"."""
        transports = [f"[transports.{name}]" for name, each in self.transports.items() if each.tls in DANE]
        return (*transports, *[f"[tls_policy] {name}" for name, each in self.tls_policy.items() if each.level in DANE])

    @property
    def commit_delay_s(self) -> float:
        """Returns how long a commit of a lane waits under load, in seconds."""
        return (self.nodes.commit_delay_ms if self.nodes.is_on else self.queue.commit_delay_ms) / 1000

    @property
    def events_directory(self) -> Path:
        """Returns the directory of the events that the reports are made from."""
        return self.place / "events"

    @property
    def identified_directories(self) -> dict[str, Path]:
        """Returns the directories that carry the identity of this Waypost (mailcore/queue/identity.py), by name."""
        directories = {"home": self.place, "queue": self.queue_directory, "spool": self.spool_directory}
        return directories | ({"events": self.events_directory} if self.export.enabled else {})

    @property
    def ballast_directories(self) -> list[str]:
        """Returns the directories whose disks have a ballast (mailcore/queue/ballast.py), the most important first."""
        return [str(self.identified_directories[name]) for name in BALLAST if name in self.identified_directories]

    @property
    def place(self) -> Path:
        """Returns the directory of what belongs to this queue: the home, or that of a shard."""
        return shard_place(self.home, self.shard) if self.shard else self.home

    @property
    def tuned_file(self) -> Path:
        """Returns the file of the values set live, which the manager keeps; with [nodes] all shards of a node have one."""
        return (self.home if self.nodes.is_on else self.place) / "tuned.toml"

    @property
    def node_run_directory(self) -> Path:
        """Returns the run directory of the node: what is the same for all its shards."""
        return self.run_directory if self.shard is None else self.run_directory.parent.parent

    @property
    def shares_directory(self) -> Path | None:
        """Returns the directory in which the managers of a node's shards share limits; None if the queue is alone."""
        return None if self.shard is None else shares_in(self.node_run_directory)

    @property
    def shard_directories(self) -> list[Path]:
        """Returns the directories that those of a shard are in, the outer ones first; none if the queue is alone."""
        if self.shard is None:
            return []
        places = [self.place, self.queue_directory.parent, self.spool_directory.parent] if self.shard else []
        return list(dict.fromkeys(each for place in places for each in (place.parent, place)))

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
    "route_maps": RouteMaps,
    "auth": Auth,
    "clients": Clients,
    "deliverer": Deliverer,
    "tls": Tls,
    "tlsrpt": TlsRpt,
    "bounce": Bounce,
    "esmtp": Esmtp,
    "lenient": Lenient,
    "client_auth": ClientAuth,
    "control": Control,
    "core": Core,
    "supervisor": Supervisor,
    "export": Export,
    "maildrop": Maildrop,
    "metrics": Metrics,
    "nodes": Nodes,
    "traces": Traces,
    "portal": Portal,
    "oidc": Oidc,
    "reports": Reports,
    "alerts": Alerts,
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
