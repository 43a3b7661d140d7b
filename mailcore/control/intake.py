"""Says whether mail is accepted while the manager does not run: not if a disk is missing, because then receivers refuse it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mailcore.log.disk import Disk

__all__ = ["ACCEPTED", "Intake"]

LOOK_S_MAX = 0.5  # a disk that hangs must not delay the answer that says so
ACCEPTED = "mail is still accepted while the disk has room"
NOT_KNOWN = "whether mail is accepted is not known: a disk does not answer"


class Intake:
    """Looks at the directories of mail as a receiver does before it accepts a message."""

    def __init__(self, disk: Disk, directories: Sequence[str]) -> None:
        self._disk = disk
        self._directories = directories

    async def state(self) -> str:
        """Returns a clause for people: mail is accepted, or why it is not."""
        try:
            async with asyncio.timeout(LOOK_S_MAX):
                return await asyncio.get_running_loop().run_in_executor(None, self._look)
        except TimeoutError:
            return NOT_KNOWN

    def _look(self) -> str:
        try:
            for directory in self._directories:
                self._disk.check(directory)
        except OSError as error:
            return f"no mail is accepted: {error.strerror or error}"
        return ACCEPTED
