"""Answers ``settings_effects``: has a child look at what a change of settings would do, and ends it when its time is over.

Laws: nothing is changed, and the manager is asked only where to read. The look has a process of its own, with a lower CPU
priority than mail; the settings for simulations limit how many run at once, and for how long.

Keeps law: effects-tell-and-change-nothing (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from mailcore.config.settings import Settings
from mailcore.control.protocol.effects import SettingsEffects, SettingsEffectsArguments
from mailcore.control.protocol.settings import SettingChange
from mailcore.control.protocol.table import ArgumentError
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, FaultError

__all__ = ["Effects", "Question"]

MODULE = "mailcore.effects"  # the child's; a room above this one
GRACE_S = 5.0  # beyond the time asked for, until it is ended: it starts, and ends what it has begun


class EffectsRefused(FaultError):
    """Raised when a look is not begun, fails, or does not end in time."""


class Reading(msgspec.Struct):
    """Where to read a lane, as ``lookup.browse.Stretch``."""

    start: int
    runner: int
    end: int | None


class Question(msgspec.Struct, kw_only=True):
    """The question to the child."""

    source: str  # the configuration file
    managed_text: str  # that of the managed file after the change
    run_directory: str  # with the settings that are in force
    stretches: dict[str, Reading]
    replaced: dict[str, int] = {}  # queue id -> generation of the newest envelope, if the manager is away
    seconds: float
    hops: int  # next hops that are tried at most
    now: float  # wall clock


class Effects:
    """Answers ``settings_effects``. ``text_after``: as ``Managing.text_after``."""

    def __init__(
        self, view: View, settings: Settings, text_after: Callable[[Sequence[SettingChange], str], Awaitable[str]]
    ) -> None:
        self._view = view
        self._settings = settings
        self._text_after = text_after
        self._running = 0
        self.answers: Mapping[str, Callable[[Session, Any], AsyncGenerator[Any, None]]] = {
            "settings_effects": self.effects
        }

    async def effects(
        self, session: Session, arguments: SettingsEffectsArguments
    ) -> AsyncGenerator[SettingsEffects, None]:
        """Yields the effects. Raises ArgumentError, EffectsRefused."""
        if bool(arguments.changes) == bool(arguments.to):
            raise ArgumentError(
                "settings_effects: changes, or the state to return to, must be given", argument="changes"
            )
        control = self._settings.control
        if self._running >= control.simulations_max:
            raise EffectsRefused(
                f"{control.simulations_max} looks or simulations are running already (control.simulations_max); "
                "try again when one is done",
                code=Code.BUSY,
            )
        self._running += 1
        try:
            text = await self._text_after(arguments.changes, arguments.to)
            stretches, _ = await self._view.stretches()
            replaced = next((dict(each.replaced) for each in stretches.values() if each.replaced), {})
            question = Question(
                source=self._settings.source,
                managed_text=text,
                run_directory=str(self._settings.run_directory),
                stretches={name: Reading(each.start, each.runner, each.end) for name, each in stretches.items()},
                replaced=replaced,
                seconds=min(arguments.seconds, control.simulation_timeout_s),
                hops=arguments.hops,
                now=time.time(),
            )
            yield await _asked(question)
        finally:
            self._running -= 1


async def _asked(question: Question) -> SettingsEffects:
    """Returns the child's answer; the child is dead when this ends in any way. Raises EffectsRefused."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", MODULE, str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(question.seconds + GRACE_S):
            output, _ = await process.communicate(msgspec.json.encode(question))
    except TimeoutError:
        raise EffectsRefused(
            f"the look at the effects was not done within {question.seconds + GRACE_S:g} s", code=Code.INTERNAL
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    try:
        return msgspec.json.decode(output, type=SettingsEffects)
    except msgspec.MsgspecError:
        raise EffectsRefused(
            f"the look at the effects ended without an answer (exit status {process.returncode})", code=Code.INTERNAL
        ) from None
