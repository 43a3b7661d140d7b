"""Answers ``log``: lines of the mail log, read from its files, and before them from events. It asks no other process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from mailcore.control.operations import Answers
from mailcore.control.protocol.log import LogArguments, LogLine, LogLines
from mailcore.control.session import Session
from mailcore.control.stepping import going
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.lookup.archive import Archive, LogPart, Trouble
from mailcore.lookup.event_lines import EventPlace, lines_before
from mailcore.lookup.log_files import PlaceError, time_of_first
from mailcore.lookup.log_selection import Selection, level_of
from mailcore.lookup.past_lines import Line, Lines, last, newer
from mailcore.lookup.pattern import PatternError
from mailcore.lookup.tracing import Walk

__all__ = ["LogAnswers"]

EVENTS_S = 4.0  # for one answer out of events; a longer search continues at its place


class NotRead(FaultError):
    """A question that can't be answered."""

    default = Code.INVALID


class LogAnswers:
    """Answers ``log``."""

    def __init__(self, view: View, log_directory: Path) -> None:
        self._view = view
        self._path = log_directory / "mail.jsonl"
        self.answers: dict[str, Answers] = {"log": self._log}

    async def _log(self, session: Session, arguments: LogArguments) -> AsyncGenerator[Any, None]:
        try:
            place = EventPlace.read(arguments.before)
            if arguments.after.startswith("events:"):
                raise PlaceError("after: allowed is a place in the log's files, which an answer calls newest")
            found = Lines([], "", "", 0)
            if place is None:
                found = await self._view.in_thread(self._read, arguments)
                if self._view.archive is None or arguments.after or found.older:
                    yield _answer(found, found.lines, [])
                    return
                begins = await self._view.in_thread(time_of_first, self._path)
                place = EventPlace.of(self._view.browser.clock() if begins is None else begins)
                if len(found.lines) >= arguments.limit:
                    yield _answer(found._replace(older=str(place)), found.lines, [])
                    return
            assert self._view.archive is not None
            async for part in self._from_events(self._view.archive, arguments, found, place):
                yield part
        except (PatternError, PlaceError) as error:
            raise NotRead(str(error)) from error

    async def _from_events(
        self, archive: Archive, arguments: LogArguments, found: Lines, place: EventPlace
    ) -> AsyncGenerator[LogLines, None]:
        """Yields parts of the answer; the last has the lines."""
        trouble = Trouble()
        monotonic = self._view.browser.monotonic
        until = monotonic() + EVENTS_S
        wanted = LogPart(arguments.queue_id.upper(), arguments.event, arguments.status)
        walk = Walk(
            lines_before(
                archive,
                lambda: _selection(arguments),
                wanted,
                arguments.limit - len(found.lines),
                place,
                lambda: monotonic() >= until,
                trouble,
            )
        )
        async for _ in going(self._view, walk):
            yield LogLines(lines=[], older="", newest="", examined_bytes=0)
        assert walk.result is not None
        note = "; ".join(each for each in (found.note, str(trouble)) if each)
        yield _answer(found._replace(older=walk.result.older, note=note), found.lines, walk.result.lines)

    def _read(self, arguments: LogArguments) -> Lines:
        """Returns lines of the files. Raises PatternError, PlaceError, NotRead."""
        try:
            if arguments.after:
                return newer(self._path, _selection(arguments), arguments.limit, arguments.after)
            return last(self._path, lambda: _selection(arguments), arguments.limit, arguments.before)
        except OSError as error:
            raise NotRead(f"{self._path}: {error.strerror}", code=Code.UNAVAILABLE) from error


def _selection(arguments: LogArguments) -> Selection:
    """Returns what selects the lines. Raises PatternError."""
    return Selection(
        queue_id=arguments.queue_id,
        sender=arguments.sender,
        recipient=arguments.recipient,
        destination=arguments.destination,
        client=arguments.client,
        status=arguments.status,
        event=arguments.event,
        level=arguments.level,
    )


def _answer(found: Lines, of_files: list[Line], of_events: list[Line]) -> LogLines:
    lines = [(line, source) for some, source in ((of_events, "events"), (of_files, "file")) for line in some]
    return LogLines(
        lines=[
            LogLine(place=line.place, level=level_of(str(line.values.get("event"))), values=line.values, source=source)
            for line, source in lines
        ],
        older=found.older,
        newest=found.newest,
        examined_bytes=found.examined,
        note=found.note,
    )
