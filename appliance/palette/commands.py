"""Finds the place that a person types a part of: pages, mail, destinations, parameters, settings; or a search for the text.

A command is a link; nothing is changed by it. Each of the words that are typed must be in its text; those that begin with the
first word come first. Only commands of the person's role are offered.

Pure: values only, no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from django.urls import reverse
from django.utils.http import urlencode

from appliance.accounts.roles import Role
from appliance.common.context import sections_of

__all__ = ["FOUND_MAX", "Command", "commands", "matching"]

FOUND_MAX = 12


class Command(NamedTuple):
    """One command: its text, what kind it is, and where it leads."""

    text: str
    kind: str
    url: str


def commands(role: Role, destinations: Iterable[str], settings: Iterable[tuple[str, str]]) -> Iterator[Command]:
    """Yields all commands of a role. ``destinations``: names; ``settings``: keys that can be managed, with their meaning."""
    for url, words in sections_of(role):
        yield Command(words, "page", reverse(url))
    for words, query in _MAIL:
        yield Command(words, "mail", f"{reverse('queue:list')}?{urlencode(query)}")
    for words, url, least in _MORE:
        if role >= least:
            yield Command(words, "page", reverse(url))
    for name in destinations:
        yield Command(f"Destination {name}", "destination", reverse("destinations:one", args=[name]))
        yield Command(f"Mail for {name}", "mail", f"{reverse('queue:list')}?{urlencode({'destination': name})}")
        yield Command(f"Limits of {name}", "tuning", f"{reverse('tuning:parameters')}?{urlencode({'scope': name})}")
        if role >= Role.OPERATOR:  # forms, which ask for a reason
            yield Command(f"Suspend {name}", "change", reverse("destinations:suspend", args=[name]))
            limit = f"{reverse('destinations:set', args=[name])}?{urlencode({'parameter': _LIMIT})}"
            yield Command(f"Set the concurrency limit of {name}", "change", limit)
    if role >= Role.ADMINISTRATOR:
        for key, meaning in settings:
            yield Command(
                f"Set {key}: {meaning}", "setting", f"{reverse('managed:settings')}?{urlencode({'key': key})}"
            )


_LIMIT = "destination_concurrency_limit"
_MAIL = (
    ("Held mail", {"lane": "hold"}),
    ("Mail that waits for a retry", {"lane": "retry.*"}),
    ("Deleted mail that can be restored", {"lane": "deleted"}),
    ("Mail older than a day", {"older_than": "1d"}),
)
_MORE = (
    ("Earlier states of the settings", "managed:history", Role.VIEWER),
    ("Certificates", "managed:certificates", Role.VIEWER),
    ("DKIM keys", "managed:dkim", Role.VIEWER),
    ("Users who send mail", "managed:users", Role.VIEWER),
    ("Maps: aliases, valid recipients, routes", "managed:maps", Role.VIEWER),
    ("History of tuning", "tuning:history", Role.VIEWER),
    ("Changes of the queue", "queue:changes", Role.OPERATOR),
    ("API", "api:operations", Role.VIEWER),
    ("Tokens", "account_tokens", Role.VIEWER),
    ("Password", "account_change_password", Role.VIEWER),
    ("Two-factor sign-in", "mfa_index", Role.VIEWER),
)


def matching(typed: str, all_commands: Iterable[Command]) -> list[Command]:
    """Returns the commands that match, best first, and a search for the text as mail."""
    words = typed.casefold().split()
    found: list[tuple[int, int, Command]] = []
    for number, each in enumerate(all_commands):
        text = each.text.casefold()
        if all(word in text for word in words):
            found.append((_rank(text, words), number, each))
    found.sort(key=lambda each: each[:2])
    best = [each for _, _, each in found[:FOUND_MAX]]
    if not typed.strip():
        return best
    search = Command(
        f"Find mail: {typed.strip()}", "search", f"{reverse('queue:search')}?{urlencode({'q': typed.strip()})}"
    )
    return [search, *best] if _is_mail(typed) else [*best[: FOUND_MAX - 1], search]


def _rank(text: str, words: list[str]) -> int:
    if not words or text.startswith(words[0]):
        return 0
    return 1 if any(part.startswith(words[0]) for part in text.replace(":", " ").replace(".", " ").split()) else 2


def _is_mail(typed: str) -> bool:
    """Returns whether the text is an address, or looks like a queue id: those are searched for first."""
    text = typed.strip()
    return "@" in text or (len(text) >= 13 and text.isalnum() and text.upper() == text)
