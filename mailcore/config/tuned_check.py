"""Finds what in ``tuned.toml`` is not in force: sections and keys that do not exist, and values that are not allowed.

An edit by hand or a change of release leaves them. They stop neither the start nor mail (decision 0008), so check-config,
the doctor and the manager's start report them, with the line, the key and the nearest name that exists.

Keeps law: ignored-tuning-is-reported (docs/laws.md).
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mailcore.bounds import BadValue
from mailcore.config.lines import Fault, located
from mailcore.config.settings import Settings
from mailcore.config.tuned import read
from mailcore.config.values import destination_pattern
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, allowed_in, check

__all__ = ["WHY_NOT_FATAL", "ignored"]

WHY_NOT_FATAL = "it is ignored, because a wrong live value must not stop mail"


def ignored(path: Path, settings: Settings) -> list[Fault]:
    """Returns a fault with its line for each value that is not in force; none without a file.

    Raises OSError; ValueError if the file is damaged as a whole.
    """
    read(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    faults = [
        fault for scope, parameters in tomllib.loads(text).items() for fault in _of_scope(scope, parameters, settings)
    ]
    return located(text, faults)


def _of_scope(scope: str, parameters: dict[str, Any], settings: Settings) -> Iterator[Fault]:
    transport, colon, rest = scope.partition(":")
    if scope and transport not in settings.transports:
        yield _fault((scope,), f"names no transport{_nearest(transport, settings.transports)}")
        return
    if colon:
        try:
            spelled = f"{transport}:{destination_pattern(rest, settings.deliverer.port)}"
        except BadValue as error:
            yield _fault((scope,), error.reason)
            return
        if spelled != scope:
            yield _fault((scope,), f"is a spelling that no route has; did you mean {spelled!r}?")
            return
    allowed = allowed_in(scope)
    for name, stored in parameters.items():
        if name not in allowed:
            yield _fault((scope, name), f"is not a parameter here{_nearest(name, allowed)}")
            continue
        if name == SUSPENDED_UNTIL:  # a time on the wall clock, which the scheduler does not know
            continue
        given = [stored[key] for key in ("lasting", "value") if key in stored] if isinstance(stored, dict) else [stored]
        for value in given:
            try:
                check(scope, name, value)
            except BadValue as error:
                yield _fault((scope, name), error.reason)


def _fault(key: tuple[str, ...], reason: str) -> Fault:
    return Fault(key, f"{reason}; {WHY_NOT_FATAL}")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
