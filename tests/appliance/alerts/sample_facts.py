"""Facts of a host on which all is well, as a test may change them."""

from __future__ import annotations

from typing import Any

import msgspec

from appliance.alerts.causes import Cause, Judgement, Severity
from appliance.alerts.facts import DiskSpace, Facts, LastReport, Queued, Unknown
from mailcore.control.protocol.messages import AgesPart
from mailcore.control.protocol.state import Certificates
from mailcore.lookup.answers import MailOutcomes
from mailcore.manager_answers import Destinations, State
from tests.answers import complete

__all__ = ["AWAY", "NOW", "ages", "cause", "destinations", "facts", "found", "outcomes", "reply", "state"]

NOW = 1_800_000_000.0
AWAY = Unknown("the core does not answer: no answer to state in time", expected=True)


def state(**given: Any) -> State:
    balance = {"recipients": {"difference": 0, "queued": 0}, "messages": {"difference": 0}}
    return msgspec.convert(complete(State, {"balance": balance, **given}), State)


def destinations(**given: Any) -> Destinations:
    return msgspec.convert(complete(Destinations, given), Destinations)


def reply(at: float = NOW - 60, status: str = "deferred", dsn: str = "4.4.1") -> dict[str, Any]:
    return {
        "at": at,
        "reply": "connect to host timed out\r\nX: y",
        "status": status,
        "dsn": dsn,
        "relay": "",
        "times": 3,
    }


def ages(oldest: dict[str, Any] | None = None, **given: Any) -> AgesPart:
    told = {
        "buckets_s": [3_600, 86_400, 172_800, None],
        "counts": [0, 0, 0, 0],
        "by_state": {},
        "as_of": NOW,
        "done": True,
    }
    return msgspec.convert(complete(AgesPart, {**told, "oldest": oldest, **given}), AgesPart)


def outcomes(**given: Any) -> MailOutcomes:
    return msgspec.convert(complete(MailOutcomes, {"since": NOW - 3_600, "note": "", **given}), MailOutcomes)


def facts(**given: Any) -> Facts:
    well: dict[str, Any] = {
        "at": NOW,
        "core_away": "",
        "state": state(),
        "destinations": destinations(),
        "queued": Queued(5, 5, NOW - 3_600, 0, 0),
        "ages": ages(),
        "disks": (DiskSpace(what="queue", path="/queue", device=1, free_bytes=1 << 40, reserve_bytes=1 << 20),),
        "certificates": Certificates(certificates=[]),
        "key_records": (),
        "report": LastReport(),
        "outcomes": outcomes(),
        "webhooks": (),
    }
    return Facts(**{**well, **given})


def cause(key: str = "disk:space:queue", severity: Severity = Severity.WARNING, summary: str = "It is so.") -> Cause:
    return Cause(key=key, rule=key.partition(":")[0], severity=severity, summary=summary, link="/")


def found(*causes: Cause, rule: str = "disk", **named: Any) -> Judgement:
    return Judgement(rule=rule, causes=causes, **named)
