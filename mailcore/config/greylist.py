"""The section [greylist]: mail of clients that are not known is put off once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from mailcore.bounds import DAY_S, bad, flag, texts, whole
from mailcore.config import values

__all__ = ["Greylist", "greylist_warnings", "settle"]

TRIES = 2  # retry_window_s and lifetime_s hold this many delays at least


def _recipient(given: str) -> str:
    try:
        if given == "*":
            raise ValueError
        return values.route_pattern(given)
    except ValueError:
        rule = 'must be a pattern: "user@example.org", "example.org", or ".example.org" for all its subdomains'
        raise bad(given, rule) from None


@dataclass(frozen=True, kw_only=True)
class Greylist:
    """[greylist]: the first mail of an unknown client, sender and recipient gets 450; a mail server tries again later."""

    enabled: bool = flag(False, "put off mail that is not known, except from our networks and users who have logged in")
    delay_s: int = whole(
        300, 1, 86_400, "seconds", "time from the first try to the first one that is accepted, as postgrey"
    )
    retry_window_s: int = whole(2 * DAY_S, 600, 31 * DAY_S, "seconds", "time in which the client must try again")
    lifetime_s: int = whole(
        35 * DAY_S, 3600, 366 * DAY_S, "seconds", "time without mail after which what was accepted is forgotten"
    )
    passes: int = whole(
        5, 0, 1_000, "passes", "first tries that were repeated, after which a client network is no longer put off",
        special={0: "each sender and recipient is put off"},
    )  # fmt: skip
    entries_max: int = whole(
        200_000, 1_000, 10_000_000, "entries", "maximum entries, in `receiver` below `home`; those that wait go first"
    )
    recipients_exempt: tuple[str, ...] = texts(
        (),
        "recipients whose mail is not put off: an address, a domain, or .example.org for all its subdomains",
        _recipient,
        values.distinct,
    )
    networks_exempt: tuple[str, ...] = texts(
        (), "networks of clients whose mail is not put off", values.network, values.distinct
    )


def settle(section: dict[str, Any], fault: Callable[[tuple[str, ...], str], object]) -> None:
    """Calls ``fault`` for times in which no retry can pass."""
    made = Greylist(**section)
    least = TRIES * made.delay_s
    for name in ("retry_window_s", "lifetime_s"):
        given = getattr(made, name)
        if given < least:
            key = name if name in section else "delay_s"
            fault(
                ("greylist", key),
                f"does not fit: {name} = {given} must be at least {TRIES} * delay_s = {least}, else no retry passes",
            )


def greylist_warnings(settings: Greylist) -> Iterator[str]:
    """Yields a sentence for each key without effect."""
    if not settings.enabled:
        for each in fields(settings):
            if getattr(settings, each.name) != getattr(Greylist(), each.name):
                yield f"[greylist] {each.name} has no effect without enabled = true"
