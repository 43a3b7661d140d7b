"""Reads the configuration file: TOML in, checked ``Settings`` out.

A wrong key or value stops the start. All faults are reported at once, each with its line and the values allowed. Other code
gets ``Settings`` as an argument and never reads the file itself.

Keeps law: faults-name-their-line (docs/laws.md).
"""

from __future__ import annotations

import functools
import os
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mailcore.bounds import BadValue, shown
from mailcore.config import alerts, client_auth, nodes, oidc, portal, recipients, route_maps, tls, traces, values
from mailcore.config.arc import arc_faults
from mailcore.config.beside import of_programs_beside
from mailcore.config.dkim import DkimKey, check_key_file, dkim_faults
from mailcore.config.document import ConfigError, Document
from mailcore.config.ehlo_keywords import TABLES, keyword_tables
from mailcore.config.fallback_lines import own_fallbacks
from mailcore.config.kept_files import kept_path, references_in, resolved, why_missing
from mailcore.config.lines import Path as Key
from mailcore.config.listeners import SUBMISSION, Certificate, Listener, listener_faults
from mailcore.config.managed import NAME as MANAGED
from mailcore.config.managed import Managed, keys_of
from mailcore.config.milters import LISTS, Milter, milter_faults
from mailcore.config.routes import checked_route
from mailcore.config.settings import (
    DEFAULT_ROUTE,
    DIRECTORIES,
    HOME_DEFAULT,
    SECTIONS,
    SHIPPED_TRANSPORTS,
    Deliverer,
    Destination,
    Queue,
    Receiver,
    Relay,
    Scheduler,
    Settings,
    TlsPolicy,
    Transport,
)
from mailcore.routing.own_addresses import OwnAddresses
from mailcore.scheduler.parameters import check_backoff

__all__ = [
    "ConfigError",
    "Deliverer",
    "Queue",
    "Receiver",
    "Relay",
    "Scheduler",
    "Settings",
    "Transport",
    "load",
    "load_managed",
    "load_text",
    "managed_path",
]


TRANSPORTS_MAX = 100  # the scheduler takes turns between them
RUN_DIRECTORY_BYTES_MAX = 80  # a socket's path has at most 107 (unix(7)); the rest is for the name


def load(path: Path, *, look_at_certificate: bool = True, managed_may_be_hidden: bool = False) -> Settings:
    """Reads and checks the file, and the managed one above it (``managed``); ``look_at_certificate`` also loads the
    certificate it names. Raises ConfigError.

    ``managed_may_be_hidden``: for the portal and for commands, whose user may not read all files. A managed file that it may
    not read is left out, and of one that does not fit this configuration file only what they use counts (``beside``).
    """
    managed = functools.partial(_managed_of, may_be_hidden=managed_may_be_hidden)
    try:
        return _Reading(path, look_at_certificate=look_at_certificate, managed=managed).settings()
    except ConfigError:
        if not managed_may_be_hidden:
            raise

    def used(document: dict[str, Any], base: Path) -> Managed | None:
        found = managed(document, base)
        return None if found is None else of_programs_beside(found)

    return _Reading(path, look_at_certificate=look_at_certificate, managed=used).settings()


def load_managed(path: Path, text: str) -> tuple[Settings, Managed]:
    """Returns the settings with ``text`` as that of the managed file, and this file. Raises ConfigError.

    The kept files that it names must be there and usable, those in places of the host need not be.
    """
    found: list[Managed] = []

    def managed(document: dict[str, Any], base: Path) -> Managed | None:
        place = managed_path(document, base)
        if place is None:
            raise ConfigError(f"{path}: [portal] manages is false: settings are changed in this file only")
        found.append(Managed(place, text, tomllib.loads(text)))
        return found[0]

    reading = _Reading(path, look_at_certificate=False, managed=managed)
    reading.looks_at_kept = True
    return reading.settings(), found[0]


def managed_path(document: Mapping[str, Any], base: Path) -> Path | None:
    """Returns where the managed file is; None if the configuration file wants none, or has no home that could have one."""
    portal, home = document.get("portal", {}), document.get("home", HOME_DEFAULT)
    if not isinstance(home, str) or (isinstance(portal, dict) and portal.get("manages") is False):
        return None
    try:
        return values.directory(home, base) / MANAGED
    except BadValue:
        return None


def _managed_of(document: dict[str, Any], base: Path, *, may_be_hidden: bool) -> Managed | None:
    path = managed_path(document, base)
    if path is None:
        return None
    try:
        return Managed.read(path)
    except OSError as error:
        if may_be_hidden and isinstance(error, PermissionError):
            return None
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # not UTF-8, not TOML, too large
        raise ConfigError(f"{path}: {error}") from None


def load_text(path: Path, text: str) -> Settings:
    """Checks a text that will become the file; the certificate it names need not exist yet. Raises ConfigError."""
    return _Reading(path, text, look_at_certificate=False).settings()


class _Reading(Document):
    """Reads one file into Settings."""

    looks_at_kept = False  # also loads the kept files

    def settings(self) -> Settings:
        known = (
            "home", *DIRECTORIES, *SECTIONS, "listener", "certificate", "dkim", "milter", "transports", "tls_policy", *TABLES,
            "routes", "sender_routes", "login_routes",
        )  # fmt: skip
        self._refuse_unknown((), self._document, known)
        home, directories = self._directories()
        self._find_kept(home)
        sections = {name: self._section((name,), kind) for name, kind in SECTIONS.items()}
        port = sections["deliverer"].get("port", Deliverer().port)
        transports = self._transports(port)
        routes = self._routes("routes", values.route_pattern, transports)
        routes.setdefault("*", DEFAULT_ROUTE)
        sender_routes = self._routes("sender_routes", values.sender_pattern, transports)
        login_routes = self._routes("login_routes", values.login_name, transports)
        policies = self._tls_policies(port)
        keywords = keyword_tables(self._table, port, transports, self._fault)
        self._tls("receiver", sections["receiver"])
        self._tls("portal", sections["portal"])
        certificates = self._certificates(sections["receiver"])
        listeners = self._listeners(sections["receiver"])
        self._fallbacks(transports, port, sections["receiver"], listeners)
        self._arc(sections["arc"], sections["authenticity"])
        keys = self._dkim()
        milters = self._milters(sections["receiver"], listeners)
        self._ca_file(("tls",), sections["tls"])
        recipients.settle(sections, self._base, self._fault)
        route_maps.absolute(sections["route_maps"], self._base)
        traces.settle(sections, self._fault)
        nodes.settle(sections["nodes"], self._base, self._fault)
        portal.settle(sections["portal"], sections["nodes"], self._base, self._fault)
        if sections["nodes"].get("database") and sections["core"].get("shards", 1) > 1:
            self._fault(("core", "shards"), "must be 1 with [nodes] database: it keeps one queue of a node")
        oidc.settle(sections["oidc"], self._base, self._fault)
        alerts.settle(sections["alerts"], self._base, self._fault)
        levels = [each.get("tls") for each in transports.values()] + [each.get("level") for each in policies.values()]
        self._checked(
            ("deliverer", "nameservers"),
            sections["deliverer"].get("nameservers", ()),
            lambda given: tls.check_nameservers(given, levels),
        )
        self._password_file(sections["client_auth"], port)
        self._backoff(sections["scheduler"])
        if self._faults:
            raise self._error()
        return Settings(
            home=home,
            queue_directory=directories["queue_directory"],
            spool_directory=directories["spool_directory"],
            run_directory=directories["run_directory"],
            log_directory=directories["log_directory"],
            **{name: kind(**sections[name]) for name, kind in SECTIONS.items()},
            transports={name: Transport(**section) for name, section in transports.items()},
            tls_policy={pattern: TlsPolicy(**policy) for pattern, policy in policies.items()},
            smtp_discard_ehlo_keywords=keywords[TABLES[0]],
            smtpd_discard_ehlo_keywords=keywords[TABLES[1]],
            routes=routes,
            sender_routes=sender_routes,
            login_routes=login_routes,
            listener=listeners,
            certificate=certificates,
            dkim=keys,
            milter=milters,
            written=tuple(self._written()),
            source=str(self._path.absolute()),
        )

    def _written(self) -> Iterator[str]:
        for name in self._table(("scheduler",)):
            yield f"scheduler.{name}"
        for transport, section in self._table(("transports",)).items():
            for name in section:
                yield f"transports.{transport}.{name}"

    # Settings that depend on each other

    def _directories(self) -> tuple[Path, dict[str, Path]]:
        home = self._directory("home", HOME_DEFAULT, self._base) or self._base
        directories: dict[str, Path] = {}
        for name, (below, _) in DIRECTORIES.items():
            place = self._directory(name, below, self._base if name in self._document else home)
            if place is None:
                continue
            for other, taken in directories.items():
                if os.path.normpath(taken) == os.path.normpath(place):
                    self._fault((name,), f"must be a directory of its own; {shown(str(place))} is {other} already")
            directories[name] = place
        sockets = directories.get("run_directory")
        if sockets and len(os.fsencode(sockets)) > RUN_DIRECTORY_BYTES_MAX:
            key = "run_directory" if "run_directory" in self._document else "home"
            self._fault(
                (key,),
                f"makes the path of the sockets too long; set run_directory to a path of up to {RUN_DIRECTORY_BYTES_MAX} "
                f"bytes (got {shown(str(sockets))})",
            )
        return home, directories

    def _find_kept(self, home: Path) -> None:
        """Puts paths in the place of references to kept files; reports those that can't be used, if it is to look."""
        self._kept: set[str] = set()
        for key in keys_of(self._document) if self.looks_at_kept else ():
            value: Any = self._document
            for part in key:
                value = value[part]
            for reference in references_in(value):
                self._kept.add(str(kept_path(home, reference)))
                if why := why_missing(home, reference):
                    self._fault(key, why)
        self._document = resolved(self._document, home)

    def _looks_at(self, *paths: str) -> bool:
        """Returns True if these files are to be loaded."""
        return self._looks_at_certificate or (bool(self._kept.intersection(paths)) and not self._faults)

    def _directory(self, name: str, default: str, base: Path) -> Path | None:
        given = self._document.get(name, default)
        if not isinstance(given, str):
            self._fault((name,), f"must be a string (got {shown(given)})")
            return None
        return typing.cast(Path | None, self._checked((name,), given, lambda text: values.directory(text, base)))

    def _transports(self, port: int) -> dict[str, dict[str, Any]]:
        table = self._table(("transports",))
        transports: dict[str, dict[str, Any]] = {name: {} for name in SHIPPED_TRANSPORTS}
        for name in table:
            key = ("transports", name)
            if self._checked(key, name, values.transport_name):
                transports[name] = self._section(key, Transport)
                if isinstance(table[name], dict):
                    transports[name]["destinations"] = self._destinations((*key, "destinations"), port)
        if len(transports) > TRANSPORTS_MAX:
            self._fault(("transports",), f"must be at most {TRANSPORTS_MAX} (got {len(transports)})")
        return transports

    def _destinations(self, key: Key, port: int) -> dict[str, dict[str, Any]]:
        destinations: dict[str, dict[str, Any]] = {}
        for name in self._table(key):
            pattern = self._checked((*key, name), name, lambda text: values.destination_pattern(text, port))
            if pattern in destinations:
                self._fault((*key, name), f"must not be there twice; it is the same as {pattern!r}")
            section = self._section((*key, name), Destination)
            if pattern is not None:
                destinations[pattern] = section
        return destinations

    def _tls_policies(self, port: int) -> dict[str, dict[str, Any]]:
        policies: dict[str, dict[str, Any]] = {}
        for name, given in self._table(("tls_policy",)).items():
            key = ("tls_policy", name)
            pattern = self._checked(key, name, lambda text: tls.policy_pattern(text, port))
            if pattern in policies:
                self._fault(key, f"must not be there twice; it is the same as {pattern!r}")
            faults = len(self._faults)
            policy = self._section(key, TlsPolicy)
            if pattern is None or not isinstance(given, dict) or len(self._faults) > faults:
                continue
            wrong = tls.contradiction(pattern, policy)
            if wrong is not None:
                self._fault((*key, wrong.name), wrong.reason)
            self._ca_file(key, policy)
            policies[pattern] = policy
        return policies

    def _ca_file(self, key: Key, section: dict[str, Any]) -> None:
        if section.get("ca_file"):
            section["ca_file"] = str(self._base / section["ca_file"])
            if self._looks_at(section["ca_file"]):
                self._checked((*key, "ca_file"), section["ca_file"], tls.check_ca_file)

    def _password_file(self, section: dict[str, Any], port: int) -> None:
        if section.get("password_file"):
            section["password_file"] = str(self._base / section["password_file"])
            if self._looks_at_certificate:
                key = ("client_auth", "password_file")
                self._checked(key, section["password_file"], lambda file: client_auth.check_file(file, port))

    def _routes(
        self, table: str, read: Callable[[str], str], transports: Mapping[str, dict[str, Any]]
    ) -> dict[str, str]:
        lmtp = [name for name, section in transports.items() if section.get("protocol") == "lmtp"]
        routes: dict[str, str] = {}
        for name, target in self._table((table,)).items():
            key = (table, name)
            pattern = self._checked(key, name, read)
            if pattern in routes:
                self._fault(key, f"must not be there twice; it is the same as {pattern!r}")
            if not isinstance(target, str):
                self._fault(key, f'must be a string such as "smtp:example.org:25" (got {shown(target)})')
                continue
            route = self._checked(key, target, lambda text: checked_route(text, transports, lmtp))
            if pattern is not None and route is not None:
                routes[pattern] = route
        return routes

    def _tls(self, name: str, section: dict[str, Any]) -> None:
        """Checks the certificate of [receiver] or [portal]. That of the portal is not loaded: its key is closed to us."""
        names = ("tls_certificate", "tls_key")
        given = [each for each in names if section.get(each)]
        for each in given:
            section[each] = str(self._base / section[each])
        try:
            if len(given) == 1:
                (missing,) = set(names) - set(given)
                raise BadValue(given[0], section[given[0]], f"is set but {missing} is missing; set both or neither")
            if given and name == "receiver" and self._looks_at(section["tls_certificate"], section["tls_key"]):
                values.check_certificate(section["tls_certificate"], section["tls_key"])
        except BadValue as error:
            self._fault((name, error.name), error.reason)

    def _certificates(self, receiver: dict[str, Any]) -> tuple[Certificate, ...]:
        found = [Certificate(**each) for each in self._tables("certificate", Certificate)]
        made = []
        for number, each in enumerate(found):
            place = ("certificate", number)
            for key in ("names", "certificate", "key"):
                if not getattr(each, key) and key not in self._document["certificate"][number]:
                    self._fault((*place, key), "must be set")
            paths = str(self._base / each.certificate), str(self._base / each.key)
            made.append(Certificate(names=each.names, certificate=paths[0], key=paths[1]))
            if self._looks_at(*paths) and each.certificate and each.key:
                try:
                    values.check_certificate(*paths, names=("certificate", "key"))
                except BadValue as error:
                    self._fault((*place, error.name), error.reason)
        if made and not receiver.get("tls_certificate"):
            self._fault(("certificate", 0), "needs the certificate of [receiver] for clients that ask for no name")
        return tuple(made)

    def _listeners(self, receiver: dict[str, Any]) -> tuple[Listener, ...]:
        listeners = []
        for each in self._tables("listener", Listener):
            defaults = {name: receiver.get(name, ()) for name in ("milters", "discard_ehlo_keywords")}
            if each.get("purpose") == "submission":
                defaults |= SUBMISSION
            listeners.append(Listener(**{**defaults, **each}))
        if listeners and "listen" not in self._table(("receiver",)):
            receiver["listen"] = ()  # the default would be one address more than the file names
        short = receiver.get("listen", Receiver().listen)
        has_certificate = bool(receiver.get("tls_certificate"))
        for number, name, reason in listener_faults(listeners, short, has_certificate):
            self._fault(("listener", number, name), reason)
        return tuple(listeners)

    def _fallbacks(
        self, transports: dict[str, dict[str, Any]], port: int, receiver: dict[str, Any], listeners: Sequence[Listener]
    ) -> None:
        addresses = [*receiver.get("listen", Receiver().listen), *(each.address for each in listeners if each.address)]
        own = OwnAddresses(values.listen_address(each) for each in addresses)
        fallbacks = {name: each["fallback_relay"] for name, each in transports.items() if "fallback_relay" in each}
        lmtp = [name for name, each in transports.items() if each.get("protocol") == "lmtp"]
        for name, reason in own_fallbacks(fallbacks, port, lmtp, own.hold):
            self._fault(("transports", name, "fallback_relay"), reason)

    def _milters(self, receiver: dict[str, Any], listeners: Sequence[Listener]) -> tuple[Milter, ...]:
        milters = [Milter(**each) for each in self._tables("milter", Milter)]
        lists = [*(receiver.get(name, ()) for name in LISTS), *(each.milters for each in listeners)]
        for number, name, reason in milter_faults(milters, sum(lists, ())):
            if name not in self._document["milter"][number] or milters[number].address:
                self._fault(("milter", number, name), reason)
        return tuple(milters)

    def _dkim(self) -> tuple[DkimKey, ...]:
        keys = [DkimKey(**each) for each in self._tables("dkim", DkimKey)]
        for number, name, reason in dkim_faults(keys):
            if (
                name not in self._document["dkim"][number] or name == "selector"
            ):  # otherwise the value has its own fault
                self._fault(("dkim", number, name), reason)
        keys = [replace(each, key=str(self._base / each.key)) for each in keys]
        for number, each in enumerate(keys):
            if self._looks_at(each.key) and "key" in self._document["dkim"][number]:
                self._checked(("dkim", number, "key"), each.key, check_key_file)
        return tuple(keys)

    def _arc(self, section: dict[str, Any], authenticity: dict[str, Any]) -> None:
        for name, reason in arc_faults(section, authenticity):
            self._fault(("arc", name), reason)
        if section.get("key"):
            section["key"] = str(self._base / section["key"])
            if self._looks_at(section["key"]):
                self._checked(("arc", "key"), section["key"], check_key_file)

    def _backoff(self, scheduler: dict[str, Any]) -> None:
        default = Scheduler()
        shortest = scheduler.get("minimal_backoff_time", default.minimal_backoff_time)
        longest = scheduler.get("maximal_backoff_time", default.maximal_backoff_time)
        try:
            check_backoff(
                shortest,
                longest,
                "minimal_backoff_time" if "minimal_backoff_time" in scheduler else "maximal_backoff_time",
            )
        except BadValue as error:
            self._fault(("scheduler", error.name), error.reason)
