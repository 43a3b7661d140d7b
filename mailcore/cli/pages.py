"""Reads the pages of a list, and continues at the cursor if the control process is replaced in the middle.

Reading may be repeated, so a page whose answer broke off is asked for again: nothing of it was shown. This does not break
never-sent-twice, which holds for each call of the client.

Keeps law: list-continues (docs/laws.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from mailcore.control.client import ControlClient, ControlError, TimedOut
from mailcore.control.protocol.messages import ListPage, SearchPart
from mailcore.control.protocol.past import ListAtPart
from mailcore.counted import counted
from mailcore.faults import Code
from mailcore.terminal.command import DONE, NOT_DONE
from mailcore.terminal.output import JsonLines, complain, cut, say, width

__all__ = ["RECONNECT_S", "Notes", "Pages", "Reconnection", "print_pages", "say_pages"]

RECONNECT_S = 30.0  # the supervisor starts a process at most 5 s after its end; the rest is for a busy machine
PAUSE_S = 0.1
# The connection broke; nothing listens yet; other clients have connected again before us.
_AWAY = frozenset({Code.OUTCOME_UNKNOWN, Code.UNAVAILABLE, Code.BUSY})
P = TypeVar("P", ListPage, SearchPart, ListAtPart)
C_contra = TypeVar("C_contra", ListPage, SearchPart, ListAtPart, contravariant=True)


class Notes(Protocol[C_contra]):
    """Collects from the pages what the last line of the list says about it."""

    def add(self, page: C_contra) -> None:
        """Adds the notes of a page."""

    def missing(self) -> bool:
        """Returns True if a part of the list could not be read."""

    def texts(self) -> Iterable[str]:
        """Returns what a person should know of the list, a line each."""

    def keys(self) -> dict[str, Any]:
        """Returns further keys of the last line."""


class Reconnection:
    """Says how long it is worth to ask again after the control process has ended."""

    def __init__(self) -> None:
        self._answered = False
        self._away_since: float | None = None
        self.count = 0  # times that the control process was away

    def answered(self) -> None:
        """Notes that the control process answers."""
        self._answered, self._away_since = True, None

    def wait(self, error: ControlError) -> None:
        """Waits a moment. Raises ``error`` if it is final, or if the control process has been away for RECONNECT_S."""
        begun = self._answered or error.code is Code.OUTCOME_UNKNOWN or self._away_since is not None
        if error.code not in _AWAY or isinstance(error, TimedOut) or not begun:
            raise error
        if self._away_since is None:
            self._away_since = time.monotonic()
            self.count += 1
        if time.monotonic() - self._away_since >= RECONNECT_S:
            raise error
        time.sleep(PAUSE_S)


class Pages(Generic[P]):
    """The pages of the list that ``operation`` answers, up to ``limit`` items.

    ``cursor`` is behind the last page that the caller has dealt with; None at the end. Raises ControlError when the control
    process does not come back within RECONNECT_S, and at once when it does not run at the beginning.
    """

    def __init__(
        self,
        control: ControlClient,
        operation: str,
        result: type[P],
        arguments: dict[str, Any],
        notes: Notes[P],
        *,
        cursor: str = "",
        limit: int = sys.maxsize,
        page_max: int,
    ) -> None:
        self._control = control
        self._operation = operation
        self._result: type[P] = result
        self._arguments = arguments
        self.notes: Notes[P] = notes
        self._left = limit
        self._page_max = page_max
        self._reconnection = Reconnection()
        self.cursor: str | None = cursor

    def __iter__(self) -> Iterator[P]:
        while self.cursor is not None and self._left > 0:
            asked = {**self._arguments, "cursor": self.cursor, "limit": min(self._left, self._page_max)}
            try:
                for part in self._control.ask_parts(self._operation, self._result, asked):
                    self._reconnection.answered()
                    self.notes.add(part)
                    yield part
                    self.cursor = part.cursor
                    self._left -= len(part.items)
            except ControlError as error:
                self._reconnection.wait(error)

    @property
    def reconnected(self) -> int:
        """Returns how often the control process was replaced."""
        return self._reconnection.count


def print_pages(pages: Pages[P]) -> int:
    """Prints a list as JSON lines and returns the exit status. Raises ControlError after the last line."""
    lines = JsonLines()

    def end(**how: Any) -> bool:
        complete = not (pages.notes.missing() or how)
        more = pages.cursor is not None
        keys = {"reconnected": pages.reconnected, **pages.notes.keys(), **how}
        lines.end(complete=complete, more=more, cursor=pages.cursor, **keys)
        return complete

    try:
        for page in pages:
            for item in page.items:
                lines.item(item)
            sys.stdout.flush()
    except ControlError as error:
        end(error=error.fault)
        raise
    except KeyboardInterrupt:
        end(interrupted=True)
        raise
    return DONE if end() else NOT_DONE


def say_pages(pages: Pages[P], lines_of: Callable[[Any], Iterable[str]]) -> int:
    """Prints a list for people and returns the exit status. Raises ControlError after it said where to continue."""
    columns = width(sys.stdout)
    count = 0
    try:
        for page in pages:
            for item in page.items:
                count += 1
                for line in lines_of(item):
                    say(cut(line, columns))
    except ControlError:
        if count and pages.cursor:
            complain(f"the list ends here, after {counted(count, 'message')}; continue with --cursor {pages.cursor}")
        raise
    for text in pages.notes.texts():
        complain(text)
    messages = f"-- {counted(count, 'message')}"
    say(messages if pages.cursor is None else f"{messages}; more: --cursor {pages.cursor}")
    return NOT_DONE if pages.notes.missing() else DONE
