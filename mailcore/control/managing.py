"""Answers the operations about settings: reads the files, checks changes as the start would, writes the managed file.

A change is checked by reading both files as a whole, with the new text of the managed one. It is written at once or not at all,
with a line in the history that has who, why and the whole text, so that each state can be returned to. Then the supervisor is
asked to reload, which ends this process, too: the answer comes before, and the next process tells what became of it.

Law: a change is made for a revision, which names the state of both files. Where another one is there, by hand or by another
operator, nothing is written.

Keeps law: managed-is-a-layer (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import tomllib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mailcore.config.document import ConfigError
from mailcore.config.known_shards import name_of
from mailcore.config.managed import (
    HISTORY,
    Managed,
    changed,
    document_text,
    is_below,
    layered,
    revision_of,
    values_of,
)
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.tuned import Timed, Values
from mailcore.config.tuned import read as read_tuned
from mailcore.control.address_faults import address_faults
from mailcore.control.kept_maps import kept_map_faults
from mailcore.control.known_settings import known_settings, plain
from mailcore.control.operations import Answers
from mailcore.control.protocol.operation import Arguments
from mailcore.control.protocol.settings import (
    KeyFault,
    SettingChange,
    SettingsArguments,
    SettingsChanged,
    SettingsHistory,
    SettingsHistoryArguments,
    SettingsKnown,
    SettingsReturnArguments,
    StateBefore,
    StatedChange,
)
from mailcore.control.room_faults import room_faults
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, Fault, FaultError
from mailcore.log.disk import Disk
from mailcore.supervisor.child import SETTINGS_NAME, stored_settings
from mailcore.supervisor.fresh_addresses import sockets_are_given
from mailcore.supervisor.reloading import RELOAD, last_result
from mailcore.supervisor.settings_change import ROLES, changed_keys, concerned, not_while_running

__all__ = ["Managing"]

HISTORY_BYTES_MAX = 64 << 20  # then the oldest half goes
VALUES_KEPT = 100  # of one change, in the history
ASK_S = 0.05  # after the answer was handed over


class NotManaged(FaultError):
    """A change that can't be made."""

    default = Code.CONFLICT


class _State(msgspec.Struct):
    """A line of the history."""

    revision: str
    at: float
    who: str
    why: str
    changed: list[StatedChange]
    text: str


class Managing:
    """Answers the operations about settings, of the process with these settings."""

    def __init__(self, view: View, settings: Settings, disk: Disk, files: SettingsFiles) -> None:
        self._view = view
        self._files = files
        self._settings = settings
        self._disk = disk
        self._one_at_a_time = asyncio.Lock()
        self.answers: dict[str, Answers] = {
            "settings": self._known,
            "settings_change": self._change,
            "settings_return": self._return,
            "settings_history": self._history,
        }

    @property
    def lock(self) -> asyncio.Lock:
        """Returns what is held while settings, or files that they refer to, are changed."""
        return self._one_at_a_time

    def documents(self) -> tuple[dict[str, Any], list[tuple[float, dict[str, Any]]]]:
        """Returns what the files have now, and the earlier states, each with when it was made. Raises NotManaged."""
        _, document, managed = self._read()
        states = []
        for each in self._states()[0]:
            with contextlib.suppress(tomllib.TOMLDecodeError):
                states.append((each.at, tomllib.loads(each.text)))
        return layered(document, managed.document), states

    async def _known(self, session: Session, arguments: Arguments) -> AsyncGenerator[Any, None]:
        yield await self._view.in_thread(self._look)

    async def _change(self, session: Session, arguments: SettingsArguments) -> AsyncGenerator[Any, None]:
        async with self._one_at_a_time:
            text = await self.text_after(arguments.changes, "")
            yield await self._apply(session, text, arguments.revision, check=arguments.check)

    async def _return(self, session: Session, arguments: SettingsReturnArguments) -> AsyncGenerator[Any, None]:
        async with self._one_at_a_time:
            text = await self.text_after((), arguments.to)
            yield await self._apply(session, text, arguments.revision, check=arguments.check)

    async def _history(self, session: Session, arguments: SettingsHistoryArguments) -> AsyncGenerator[Any, None]:
        states, faults = await self._view.in_thread(self._states)
        found = [
            StateBefore(revision=each.revision, at=each.at, who=each.who, why=each.why, changed=each.changed)
            for each in reversed(states[-arguments.limit :])
        ]
        yield SettingsHistory(states=found, faults=faults)

    async def text_after(self, changes: Sequence[SettingChange], to: str) -> str:
        """Returns the text of the managed file after these changes, or that of the state ``to``. Raises NotManaged."""
        if to:
            return await self._view.in_thread(self._text_of, to)
        return await self._view.in_thread(self._text_after, changes)

    # -- reading, in threads

    def _read(self) -> tuple[str, dict[str, Any], Managed]:
        """Returns the text of the configuration file, what is in it, and the managed file. Raises NotManaged."""
        source = reading = Path(self._settings.source)
        try:
            text = source.read_text(encoding="utf-8")
            document = tomllib.loads(text)
            path = self._files.managed_path(document, source.parent)
            if path is None:
                return text, document, Managed(source, "", {})
            reading = path
            return text, document, Managed.read(path)
        except (OSError, ValueError) as error:
            raise NotManaged(f"{reading}: {error}", code=Code.UNAVAILABLE) from error

    def _manages(self, managed: Managed) -> bool:
        return managed.path != Path(self._settings.source)

    def _look(self) -> SettingsKnown:
        text, document, managed = self._read()
        fault, waiting, is_waiting = "", list[str](), False
        try:
            old, new = self._in_force(), self._files.load(Path(self._settings.source))
            waiting = [each.key for each in changed_keys(old, new)]
            is_waiting = bool(waiting or concerned(old, new))  # also if only the origin of a value changed
        except ConfigError as error:
            fault = str(error)
        reload = last_result(self._settings.node_run_directory)
        tuned: tuple[Values, Timed] = ({}, {})
        with contextlib.suppress(OSError, ValueError):  # the manager says what is wrong with it
            tuned = read_tuned(self._settings.tuned_file)
        known = known_settings(document, managed, tuned, time.time())
        return SettingsKnown(
            manages=self._manages(managed),
            source=self._settings.source,
            revision=revision_of(text, managed.text),
            settings=known,
            in_force=not (fault or is_waiting or (reload and reload.get("ended_at") is None)),
            waiting=waiting,
            fault=fault,
            reload=reload,
        )

    def _in_force(self) -> Settings:
        """Returns the settings that the processes have: this one did not start again for each change. Raises NotManaged."""
        try:
            return stored_settings(self._settings.node_run_directory / SETTINGS_NAME)
        except OSError as error:
            raise NotManaged(f"{error.filename}: {error.strerror}", code=Code.UNAVAILABLE) from error

    def _text_after(self, changes: Sequence[SettingChange]) -> str:
        """Returns the text of the managed file after the changes. Raises NotManaged.

        A removal of what the configuration file does not have undoes a change, and no more.
        """
        _, document, managed = self._read()
        there = values_of(document)
        removed = [tuple(each.key) for each in changes if each.removed]
        values = [(tuple(each.key), None if each.removed else each.value) for each in changes]
        removed = [key for key in removed if any(is_below(each, key) for each in there)]
        try:
            return document_text(changed(managed.document, values, removed))
        except (TypeError, ValueError) as error:
            raise NotManaged(str(error), code=Code.INVALID) from error

    def _text_of(self, revision: str) -> str:
        for state in reversed(self._states()[0]):
            if state.revision == revision:
                return state.text
        raise NotManaged(f"the history has no state {revision}", code=Code.NOT_FOUND)

    def _states(self) -> tuple[list[_State], list[Fault]]:
        found, faults = list[_State](), list[Fault]()
        path = self._settings.home / HISTORY
        with contextlib.suppress(FileNotFoundError):
            for number, line in enumerate(path.read_bytes().splitlines(), 1):
                try:
                    found.append(msgspec.json.decode(line, type=_State))
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    faults.append(Fault(Code.INTERNAL, f"{path}:{number}: {error}"))
        return found, faults

    # -- changing

    async def _apply(self, session: Session, text: str, revision: str, *, check: bool) -> SettingsChanged:
        """Checks the new text, and unless ``check``, writes it and asks for the reload."""
        answer = await self._view.in_thread(self._checked, text, revision, not check)
        if check or answer.faults:
            return answer
        await self._view.in_thread(self._write, session, text, answer)
        answer.applied = True
        asyncio.get_running_loop().call_later(ASK_S, self._ask_for_reload)
        return answer

    def _checked(self, text: str, revision: str, must_match: bool) -> SettingsChanged:
        file_text, _, managed = self._read()
        if not self._manages(managed):
            raise NotManaged("[portal] manages is false: settings are changed in the configuration file only")
        now = revision_of(file_text, managed.text)
        if revision != now if must_match else revision not in ("", now):
            raise NotManaged(
                f"the settings were changed meanwhile, in the file or by another operator: their revision is {now}; look again"
            )
        after = revision_of(file_text, text)
        try:
            new, _ = self._files.load_managed(Path(self._settings.source), text)
        except ConfigError as error:
            faults = [KeyFault(key=_dotted(each.key), reason=each.reason) for each in error.faults]
            return _refused(faults or [KeyFault(key="", reason=str(error))], after)
        if faults := kept_map_faults(new):
            return _refused(faults, after)
        old = self._in_force()
        faults = address_faults(old, new, sockets_are_given=sockets_are_given(self._settings.node_run_directory))
        if faults := [*faults, *room_faults(old, new, self._disk)]:
            return _refused(faults, after)
        refused = not_while_running(old, new, sockets_are_given=False)
        if refused:
            return _refused([KeyFault(key="", reason=f"{each}; it needs a restart") for each in refused], after)
        return SettingsChanged(
            faults=[],
            changed=[
                StatedChange(key=each.key, before=plain(each.before), after=plain(each.after))
                for each in changed_keys(old, new)
            ],
            restarts=[role for role in ROLES if role in concerned(old, new)],
            revision=after,
            applied=False,
        )

    def _write(self, session: Session, text: str, answer: SettingsChanged) -> None:
        """Writes the managed file, then the history. Raises NotManaged."""
        _, _, managed = self._read()
        state = _State(answer.revision, time.time(), session.who, session.why, answer.changed[:VALUES_KEPT], text)
        try:
            self._put(managed.path, text)
        except OSError as error:
            raise NotManaged(f"{managed.path}: {error.strerror}", code=Code.INTERNAL) from error
        try:
            self._keep(state)
        except OSError as error:
            why = f"{self._settings.home / HISTORY}: {error.strerror}"
            raise NotManaged(f"{why}; {self._put_back(managed)}", code=Code.INTERNAL) from error

    def _put(self, path: Path, text: str) -> None:
        self._disk.write_whole(str(path), text.encode())
        os.chmod(path, 0o644)  # every command reads it

    def _put_back(self, managed: Managed) -> str:
        """Undoes a change that is not in the history; returns what became of it. The file before has room: it was there."""
        try:
            if managed.text:
                self._put(managed.path, managed.text)
            else:
                managed.path.unlink()
        except OSError as error:
            return f"the change is in {managed.path}, and not in force: it could not be undone ({error.strerror})"
        return "nothing was changed"

    def _keep(self, state: _State) -> None:
        path = self._settings.home / HISTORY
        line = msgspec.json.encode(state) + b"\n"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > HISTORY_BYTES_MAX:
                lines = path.read_bytes().splitlines(keepends=True)
                self._disk.write_whole(str(path), b"".join(lines[len(lines) // 2 :]))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
        with open(descriptor, "ab") as file:
            size = os.fstat(descriptor).st_size
            if (
                size and os.pread(descriptor, 1, size - 1) != b"\n"
            ):  # a kill or a full disk cut the line of another state
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _ask_for_reload(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            processes = json.loads((self._settings.node_run_directory / "processes.json").read_text())
            shard = self._settings.shard
            ours = processes.get("supervisor" if shard is None else name_of("supervisor", shard))
            if ours == os.getppid():  # another parent would not know the signal
                os.kill(processes["supervisor"], RELOAD)


def _refused(faults: list[KeyFault], revision: str) -> SettingsChanged:
    return SettingsChanged(faults=faults, changed=[], restarts=[], revision=revision, applied=False)


def _dotted(key: Sequence[str | int]) -> str:
    return ".".join(map(str, key))
