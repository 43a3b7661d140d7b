"""Queries to name servers with a time limit; every outcome is a value, never an exception.

Law: servers are asked side by side, a silent one is asked once in a run, and all lookups of a run end within ALL_S. So a dead
name server costs the doctor seconds, for any number of names.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdatatype
import dns.resolver
import dns.reversename

from mailcore.config.settings import Settings
from mailcore.config.values import nameserver_address

__all__ = ["Answer", "Lookups", "Server", "ask", "servers_of", "side_by_side", "system_servers"]

TRY_S = 1.5  # a server that answers later delays mail for each new destination
TRIES = 2  # of the first question to each server: one datagram may be lost
ALL_S = 4.5  # an operator waits for the report
SERVERS_MAX = 4  # resolv.conf(5) has three

Server = tuple[str, int]  # address and port
T = TypeVar("T")


class Answer(NamedTuple):
    """The answer of a name server. ``rcode`` is "" if none came; ``error`` then says why. ``validated``: it has the AD bit."""

    rcode: str
    records: tuple[str, ...]
    took_s: float
    error: str = ""
    validated: bool = False

    @property
    def is_usable(self) -> bool:
        """Tells whether the server gave a definite answer, even if the name does not exist."""
        return self.rcode in ("NOERROR", "NXDOMAIN")


def servers_of(settings: Settings, resolv_conf: Path) -> list[Server]:
    """Returns the name servers that deliverers use."""
    if settings.deliverer.nameservers:
        return [nameserver_address(each) for each in settings.deliverer.nameservers][:SERVERS_MAX]
    return system_servers(resolv_conf)


def system_servers(resolv_conf: Path) -> list[Server]:
    """Returns the name servers of this host."""
    with contextlib.suppress(dns.exception.DNSException, OSError):
        found = dns.resolver.Resolver(str(resolv_conf)).nameservers
        return [(str(each), 53) for each in found][:SERVERS_MAX]
    return []  # the file names no server, or cannot be read


def side_by_side(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Returns the results of all calls, which run at the same time and must not raise."""
    results: dict[int, T] = {}

    def run(number: int) -> None:
        results[number] = calls[number]()

    # Daemon threads do not delay the exit if a check exceeds its own limit.
    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(calls))]


def ask(server: Server, name: str, kind: str, tries: int, until: float) -> Answer:
    """Sends one query over UDP, and over TCP if the answer is truncated. ``kind`` is a record type such as "MX".

    ``until`` is the end of all tries, on the monotonic clock.
    """
    began = time.monotonic()
    error = "no time is left for this lookup"
    try:
        asked = dns.name.from_text(name)
        question = dns.message.make_query(asked, kind)
        question.flags |= dns.flags.AD  # asks for this bit in the answer (RFC 6840 5.7)
    except dns.exception.DNSException as fault:
        return Answer("", (), 0.0, f"{name!r} is not a valid domain name: {fault}")
    for _ in range(tries):
        allowed_s = min(TRY_S, until - time.monotonic())
        if allowed_s <= 0:
            break
        try:
            answer = _answer(server, question, allowed_s, until)
        except dns.exception.Timeout:
            error = f"no answer within {TRY_S:g} s"
        except (dns.exception.DNSException, OSError, EOFError) as fault:
            error = str(fault) or type(fault).__name__
        else:
            took_s = time.monotonic() - began
            rrtype = dns.rdatatype.from_text(kind)
            records = tuple(
                str(record).lower() if kind in ("MX", "PTR") else str(record)
                for rrset in answer.answer
                if rrset.rdtype == rrtype
                for record in rrset
            )
            validated = bool(answer.flags & dns.flags.AD)
            return Answer(dns.rcode.to_text(answer.rcode()), records, took_s, validated=validated)
    return Answer("", (), time.monotonic() - began, error)


def _answer(server: Server, question: dns.message.QueryMessage, allowed_s: float, until: float) -> dns.message.Message:
    try:
        return dns.query.udp(question, server[0], allowed_s, server[1], raise_on_truncation=True)
    except dns.message.Truncated:
        left_s = max(0.1, min(TRY_S, until - time.monotonic()))
        return dns.query.tcp(question, server[0], left_s, server[1])


class Lookups:
    """The lookups of one run. ``own_name`` is what each server is asked for first; its checks share the result."""

    def __init__(self, servers: Sequence[Server], own_name: str) -> None:
        self.servers = servers
        dotted = "." in own_name and not own_name.startswith("[")
        self.first_question = (own_name, "A") if dotted else (".", "NS")
        self._first_answers: dict[Server, Answer] | None = None
        self._until = 0.0
        self._lock = threading.Lock()

    def first_answers(self) -> dict[Server, Answer]:
        """Returns the answer of each server to the first question; asks them all at once when called for the first time."""
        with self._lock:
            if self._first_answers is None:
                self._until = time.monotonic() + ALL_S
                calls = [
                    functools.partial(ask, server, *self.first_question, TRIES, self._until) for server in self.servers
                ]
                self._first_answers = dict(zip(self.servers, side_by_side(calls), strict=True))
            return self._first_answers

    def ask(self, name: str, kind: str) -> Answer:
        """Asks the servers that are not silent, one after another, and returns the first usable answer."""
        answering = [server for server, answer in self.first_answers().items() if answer.rcode]
        error = "no name server answers" if self.servers else "no name server is configured"
        answer = Answer("", (), 0.0, error)
        for server in answering:
            answer = ask(server, name, kind, 1, self._until)
            if answer.is_usable:
                break
        return answer

    def ask_each(self, servers: Sequence[Server], name: str, kind: str) -> dict[Server, Answer]:
        """Asks each of the servers that are not silent, at once."""
        answering = [server for server, answer in self.first_answers().items() if answer.rcode and server in servers]
        calls = [functools.partial(ask, server, name, kind, 1, self._until) for server in answering]
        return dict(zip(answering, side_by_side(calls), strict=True))

    def ask_all(self, name: str, kinds: Sequence[str]) -> list[Answer]:
        """Asks for several kinds of records at once."""
        return side_by_side([functools.partial(self.ask, name, kind) for kind in kinds])
