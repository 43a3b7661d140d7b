"""Postfix's master.cf, master(5): services, their commands, and ``-o`` overrides."""

from __future__ import annotations

from dataclasses import dataclass, field

from mailcore.import_postfix.main_cf import logical_lines, split_list

__all__ = ["Service", "parse_master_cf"]

_COLUMNS = 8  # service type private unpriv chroot wakeup maxproc command


@dataclass(frozen=True, slots=True)
class Service:
    """One service. ``limit``: its maxproc; None for ``default_process_limit``, 0 for no limit."""

    name: str
    kind: str  # inet, unix, unix-dgram, pass, fifo
    limit: int | None
    command: str
    overrides: dict[str, str] = field(default_factory=dict)
    line: int = 0


def parse_master_cf(text: str) -> tuple[list[Service], list[str]]:
    """Parses services in the order of the file, and the errors."""
    services: list[Service] = []
    faults: list[str] = []
    for number, line in logical_lines(text):
        columns = line.split(None, _COLUMNS - 1)
        if len(columns) < _COLUMNS:
            faults.append(f"master.cf:{number}: has fewer than {_COLUMNS} columns")
            continue
        maxproc = columns[6]
        if maxproc != "-" and not maxproc.isdigit():
            faults.append(f"master.cf:{number}: {maxproc!a} is not a process limit")
            continue
        words = _words(columns[7])
        limit = None if maxproc == "-" else int(maxproc)
        services.append(Service(columns[0], columns[1], limit, words[0], _overrides(words[1:]), number))
    return services, faults


def _words(text: str) -> list[str]:
    """Splits a command line; only braces group words: ``{ ... }``."""
    return [
        word[1:-1].strip() if word.startswith("{") and word.endswith("}") else word
        for word in split_list(text.replace(",", "\0"))
    ]


def _overrides(words: list[str]) -> dict[str, str]:
    """Parses ``-o name=value``, ``-oname=value``, ``-o { name = value }``."""
    found: dict[str, str] = {}
    rest = [word.replace("\0", ",") for word in words]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-o"):
            continue
        pair = word[2:] or (rest.pop(0) if rest else "")
        name, equals, value = pair.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found
