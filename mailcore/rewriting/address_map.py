"""A file that maps addresses to addresses: exact, by domain, or by regular expressions.

A line is ``user@example.org other@example.net[, ...]``, or ``@example.org`` for all other addresses of a domain, as in
Postfix's virtual(5) and canonical(5). ``@example.net`` as a result keeps the local part. A line that begins with a space
continues the one before; ``#`` begins a comment. A domain and a word without @ behind it have no effect: in Postfix the line
names a domain of aliases. In a file named ``regexp:/path`` a line is ``/PATTERN/ result``, with $1 to $9
for groups; the first pattern that is found counts, and case does not matter (regexp_table(5)).

Laws
- A file is read as a whole or not at all; a fault names file and line.
- A regular expression has PATTERN_TIMEOUT_S for an address, and all of them together have the time of a ``Budget`` for a
  message. Python's own ``re`` cannot be stopped, so this is the library ``regex`` (docs/decisions/0036).

Keeps law: patterns-bounded (docs/laws.md).
"""

from __future__ import annotations

import re
from typing import NamedTuple

import regex

from mailcore.counted import counted
from mailcore.rewriting.budget import PATTERN_TIMEOUT_S, Budget, PatternTooSlow
from mailcore.rewriting.map_text import MapFault, logical_lines, read_text
from mailcore.routing.address import comparable, comparable_domain, is_mailbox, split, split_extension
from mailcore.routing.route import RouteError, domain_name

__all__ = [
    "GROUP",
    "PATTERNS_MAX",
    "REGEXP",
    "AddressMap",
    "filled",
    "read_map",
]

REGEXP = "regexp:"  # as in mailcore.config.rewriting
PATTERNS_MAX = 1_000  # of one file: each address is compared with all of them
RESULTS_MAX = 10_000  # addresses of one line

_RULE = re.compile(r"/((?:[^/\\]|\\.)+)/\s+(\S.*)")
GROUP = re.compile(r"\$(?:(\d)|\{(\d)\}|\((\d)\)|(\$))")


class _Rule(NamedTuple):
    """One line of regular expressions."""

    pattern: regex.Pattern[str]
    results: tuple[str, ...]
    place: str  # "FILE:LINE"


class AddressMap:
    """Holds the entries of one file. ``delimiter`` separates the extension of a local part; "" without extensions."""

    def __init__(self, exact: dict[str, tuple[str, ...]], rules: tuple[_Rule, ...], delimiter: str = "") -> None:
        self._exact = exact
        self._rules = rules
        self._delimiter = delimiter

    def __len__(self) -> int:
        return len(self._exact) + len(self._rules)

    def find(self, address: str, budget: Budget | None = None) -> tuple[str, ...] | None:
        """Returns the addresses that an address becomes; None if the map does not have it. Raises PatternTooSlow.

        ``budget`` is that of the message; None: only each pattern is bounded.
        """
        exact = self._exact
        if exact:
            key = comparable(address)
            found = exact.get(key)
            if found is not None:
                return tuple(_same_user(result, address) for result in found)
            local_part, domain = split(key)
            user, extension = split_extension(local_part, self._delimiter)
            if extension:
                found = exact.get(f"{user}@{domain}")
                if found is not None:
                    return tuple(_extended(_same_user(result, address), address, self._delimiter) for result in found)
            found = exact.get(f"@{domain}")
            if found is not None:
                return tuple(_same_user(result, address) for result in found)
        return self._by_rule(address, budget) if self._rules else None

    def _by_rule(self, address: str, budget: Budget | None) -> tuple[str, ...] | None:
        for rule in self._rules:
            seconds = PATTERN_TIMEOUT_S if budget is None else budget.for_pattern()
            try:
                if seconds <= 0:
                    raise TimeoutError
                match = rule.pattern.search(address, timeout=seconds)
            except TimeoutError:
                if seconds < PATTERN_TIMEOUT_S:  # the rest of the message's time: others had used it
                    why = "the patterns take too long for all addresses of the message"
                else:
                    why = f"the pattern takes too long for {address!a}"
                raise PatternTooSlow(f"{rule.place}: {why}") from None
            if match is not None:
                made = tuple(filled(result, match) for result in rule.results)
                wrong = next((result for result in made if not is_mailbox(result)), None)
                if wrong is not None:
                    raise PatternTooSlow(f"{rule.place}: makes {wrong!a} of {address!a}, which is not an address")
                return made
        return None


def read_map(name: str, delimiter: str = "") -> AddressMap:
    """Reads a file. ``name`` is its path, with ``regexp:`` before that of regular expressions. Raises MapFault."""
    path = name.removeprefix(REGEXP)
    text = read_text(path)
    faults: list[str] = []
    exact: dict[str, tuple[str, ...]] = {}
    rules: list[_Rule] = []
    for number, line in logical_lines(text):
        try:
            if name.startswith(REGEXP):
                rules.append(_rule(line, f"{path}:{number}"))
            elif not _names_alias_domain(line):
                key, results = _entry(line)
                if key in exact:
                    raise ValueError(f"{key!a} is there twice")
                exact[key] = results
        except ValueError as error:
            faults.append(f"{path}:{number}: {error}")
    if len(rules) > PATTERNS_MAX:
        faults.append(f"{path}: has {counted(len(rules), 'pattern')}; at most {PATTERNS_MAX} are allowed")
    if faults:
        raise MapFault("\n".join(faults))
    return AddressMap(exact, tuple(rules), delimiter)


def _names_alias_domain(line: str) -> bool:
    """Returns whether a line is "example.org anything", with which virtual(5) names a domain of aliases. It maps no address."""
    key, *rest = line.split(None, 1)
    return "." in key and bool(rest) and "@" not in line and _is_domain(f"@{key}")


def _entry(line: str) -> tuple[str, tuple[str, ...]]:
    key, *rest = line.split(None, 1)
    if not rest:
        raise ValueError(f"{key!a} has no address behind it")
    return _key(key), _results(rest[0], lambda text: is_mailbox(text) or _is_domain(text))


def _key(text: str) -> str:
    if text.startswith("@"):
        if not _is_domain(text):
            raise ValueError(f"{text!a} is neither an address nor @domain")
        return f"@{comparable_domain(text[1:])}"
    if not is_mailbox(text):
        raise ValueError(f"{text!a} is neither an address nor @domain")
    if text.startswith("*@"):
        raise ValueError(f"{text!a} must be {text[1:]!a}, which stands for all addresses of the domain")
    return comparable(text)


def _results(text: str, is_valid: object) -> tuple[str, ...]:
    results = tuple(part for part in re.split(r"[,\s]+", text) if part)
    if len(results) > RESULTS_MAX:
        raise ValueError(f"{counted(len(results), 'address')}; at most {RESULTS_MAX} are allowed in one line")
    for result in results:
        if not is_valid(result):  # type: ignore[operator]
            raise ValueError(f"{result!a} is neither an address nor @domain")
    return results


def _is_domain(text: str) -> bool:
    try:
        return text.startswith("@") and bool(domain_name(comparable_domain(text[1:])))
    except RouteError:
        return False


def _rule(line: str, place: str) -> _Rule:
    match = _RULE.fullmatch(line)
    if match is None:
        raise ValueError("must be /PATTERN/ and an address")
    try:
        pattern = regex.compile(match[1].replace("\\/", "/"), regex.IGNORECASE)
    except regex.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    for group in GROUP.finditer(match[2]):
        number = int(group[1] or group[2] or group[3] or 0)
        if number > pattern.groups:
            raise ValueError(f"${number}: the pattern has {counted(pattern.groups, 'group')}")
    return _Rule(pattern, _results(match[2], lambda text: "@" in text or "$" in text), place)


def filled(result: str, match: regex.Match[str]) -> str:
    """Returns a result with the groups of a match in place of $1 to $9."""

    def group(found: re.Match[str]) -> str:
        if found[4]:
            return "$"
        return match[int(found[1] or found[2] or found[3])] or ""

    return GROUP.sub(group, result)


def _same_user(result: str, address: str) -> str:
    return split(address)[0] + result if result.startswith("@") else result


def _extended(result: str, address: str, delimiter: str) -> str:
    """Returns the result with the extension of the address that was looked up (propagate_unmatched_extensions)."""
    local_part, domain = split(result)
    if split_extension(local_part, delimiter)[1]:
        return result
    extended = f"{local_part}{split_extension(split(address)[0], delimiter)[1]}@{domain}"
    return extended if is_mailbox(extended) else result
