"""Clients whose mail was accepted, and would be refused after a change of listeners, relaying or the size limit.

Each message of the last week is judged by the settings of now and by the new ones, with the address that a client came to left
open, because it is not recorded. Only what the settings of now accept and the new ones refuse counts. Checks that ask others
(DNS lists, milters, recipients behind us, SPF) are not judged here.

Pure: no I/O, no clock.

Keeps law: effects-tell-and-change-nothing (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mailcore.config.listeners import Listener
from mailcore.config.settings import Settings
from mailcore.control.protocol.effects import CLIENTS_SHOWN, RefusedClient
from mailcore.effects.arrivals import Arrival
from mailcore.receiver.path import Path
from mailcore.receiver.policy import RelayPolicy
from mailcore.routing.address import split

__all__ = ["CLIENTS_MAX", "ClientsCompared", "concerns_clients"]

CLIENTS_MAX = 10_000  # counted by name
_JUDGED = ("listener", "relay")
_JUDGED_OF_RECEIVER = ("listen", "message_size_limit")


RELAY_DENIED = "it is outside [relay] networks, and sends to a domain that is not in [relay] domains"


class _Refusal(NamedTuple):
    reason: str
    example: str = ""


class _Rules:
    """The settings that decide, of one configuration."""

    def __init__(self, settings: Settings) -> None:
        self.policy = RelayPolicy(settings.relay.networks, settings.relay.domains)
        self.listeners = {each.address: each for each in settings.all_listeners}
        self.size_limit = settings.receiver.message_size_limit

    def refusal(self, address: str, arrival: Arrival) -> _Refusal | None:
        """Returns why the message would be refused at a listener; None if it is accepted."""
        listener = self.listeners.get(address)
        if listener is None:
            return _Refusal(f"nothing listens on {address}")
        if arrival.first and self.size_limit and arrival.size_bytes > self.size_limit:
            return _Refusal(f"the message is larger than {self.size_limit} bytes")
        if listener.tls in ("required", "implicit") and not arrival.tls:
            return _Refusal("it does not use TLS")
        if arrival.login and listener.auth == "off":
            return _Refusal("no login is offered")
        trusted = bool(arrival.login) or self.policy.trusts(arrival.client_address)
        if not arrival.login and _needs_login(listener, is_trusted=trusted):
            return _Refusal("it does not log in")
        for recipient in arrival.recipients:
            local_part, domain = split(recipient)
            if domain and not self.policy.accepts(Path(recipient, local_part, domain), trusted):
                return _Refusal(RELAY_DENIED, recipient)
        return None


def _needs_login(listener: Listener, *, is_trusted: bool) -> bool:
    return listener.auth == "required" or (listener.purpose == "submission" and not is_trusted)


class _Counted:
    """The refused mail of one client for one reason."""

    def __init__(self) -> None:
        self.messages = 0
        self.last_at = 0.0
        self.example = ""


class ClientsCompared:
    """Judges arrivals and counts the clients that would be refused."""

    def __init__(self, old: Settings, new: Settings) -> None:
        self._old, self._new = _Rules(old), _Rules(new)
        self.examined = 0
        self.unexplained = 0
        self._found: dict[tuple[str, str, str, bool], _Counted] = {}
        self._not_named = 0

    def judge(self, arrival: Arrival) -> None:
        """Counts an arrival."""
        self.examined += arrival.first
        open_to = [each for each in self._old.listeners if self._old.refusal(each, arrival) is None]
        if not open_to:
            self.unexplained += arrival.first
            return
        refusals = [found for each in open_to if (found := self._new.refusal(each, arrival)) is not None]
        if not refusals:
            return
        certain = len(refusals) == len(open_to)
        refusal = _most_telling(refusals)
        key = arrival.client_address, arrival.login, refusal.reason, certain
        counted = self._found.get(key)
        if counted is None:
            if len(self._found) >= CLIENTS_MAX:
                self._not_named += 1
                return
            counted = self._found[key] = _Counted()
        counted.messages += 1
        if arrival.at >= counted.last_at:
            counted.last_at, counted.example = arrival.at, refusal.example

    def clients(self) -> tuple[list[RefusedClient], int]:
        """Returns the clients, those with the most mail first, and how many are left out."""
        order = sorted(self._found.items(), key=lambda each: (not each[0][3], -each[1].messages, each[0]))
        rows = [
            RefusedClient(
                client_address=address,
                login=login,
                reason=reason,
                messages=counted.messages,
                last_at=counted.last_at,
                example=counted.example,
                certain=certain,
            )
            for (address, login, reason, certain), counted in order[:CLIENTS_SHOWN]
        ]
        return rows, max(len(order) - CLIENTS_SHOWN, 0) + self._not_named


def _most_telling(refusals: Iterable[_Refusal]) -> _Refusal:
    """Returns the refusal that says most: a rule before an address that is gone."""
    found = list(refusals)
    return next((each for each in found if not each.reason.startswith("nothing listens")), found[0])


def concerns_clients(field: str, key: str) -> bool:
    """Returns whether ``ClientsCompared`` judges a changed key (``settings_change.Changed``)."""
    name = key.rpartition(" ")[2]
    return field in _JUDGED or (field == "receiver" and name in _JUDGED_OF_RECEIVER)
