"""Answers ``log``: lines of the mail log, read from its file. It asks no other process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from mailcore.control.operations import Answers
from mailcore.control.protocol.log import LogArguments, LogLine, LogLines
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, FaultError
from mailcore.lookup.log_selection import Selection, level_of
from mailcore.lookup.past_lines import PlaceError, last, newer
from mailcore.lookup.pattern import PatternError

__all__ = ["LogAnswers"]


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
        yield await self._view.in_thread(self._read, arguments)

    def _read(self, arguments: LogArguments) -> LogLines:
        def selection() -> Selection:
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

        try:
            if arguments.after:
                found = newer(self._path, selection(), arguments.limit, arguments.after)
            else:
                found = last(self._path, selection, arguments.limit, arguments.before)
        except (PatternError, PlaceError) as error:
            raise NotRead(str(error)) from error
        except OSError as error:
            raise NotRead(f"{self._path}: {error.strerror}", code=Code.UNAVAILABLE) from error
        lines = [
            LogLine(place=each.place, level=level_of(str(each.values.get("event"))), values=each.values)
            for each in found.lines
        ]
        return LogLines(lines=lines, older=found.older, newest=found.newest, examined_bytes=found.examined)
