"""Answers the operations about settings: reads the files, checks changes as the start would, writes the managed file.

A change is checked by reading both files as a whole, with the new text of the managed one. It is written at once or not at all,
with a line in the history that has who, why and the whole text, so that each state can be returned to. Then the supervisor is
asked to reload, which ends this process, too: the answer comes before, and the next process tells what became of it.

Law: a change is made for a revision, which names the state of both files. Where another one is there, by hand or by another
operator, nothing is written.

Where nodes share their settings, the change is in the database of the nodes before it is in the file here, and is refused if
the database has a newer state than this node. Behind the commit nothing is undone: the process that takes over what other
nodes change does the rest if this one is killed.

Keeps law: managed-is-a-layer, law: settings-once (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
import tomllib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mailcore.config.document import ConfigError
from mailcore.config.kept_files import references_in
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
from mailcore.config.managed_history import ManagedHistory, State
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.shared_settings import (
    MANAGED,
    TUNED,
    WHY_OF_EACH_NODE,
    Shared,
    is_of_each_node,
    of_each_node,
    trouble_in,
)
from mailcore.config.tuned import Timed, Values
from mailcore.config.tuned import read as read_tuned
from mailcore.control.change_faults import change_faults
from mailcore.control.kept_store import KeptStore
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
from mailcore.control.session import Session
from mailcore.control.view import View
from mailcore.faults import Code, Fault, FaultError
from mailcore.log.disk import Disk
from mailcore.supervisor.child import SETTINGS_NAME, stored_settings
from mailcore.supervisor.reloading import RELOAD, last_result
from mailcore.supervisor.settings_change import ROLES, changed_keys, concerned

__all__ = ["Managing"]

VALUES_KEPT = 100  # of one change, in the history
ASK_S = 0.05  # after the answer was handed over


class Checked(NamedTuple):
    """The texts of the configuration file and of the managed one that a change was checked with."""

    file_text: str
    managed_text: str


class NotManaged(FaultError):
    """A change that can't be made."""

    default = Code.CONFLICT


class Managing:
    """Answers the operations about settings, of the process with these settings."""

    def __init__(
        self, view: View, settings: Settings, disk: Disk, files: SettingsFiles, shared: Shared | None = None
    ) -> None:
        self._view = view
        self._shared = shared
        self._kept = KeptStore(settings.home)
        self._history_file = ManagedHistory(settings.home, disk)
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
            StateBefore(
                revision=each.revision, at=each.at, who=each.who, why=each.why, node=each.node,
                changed=msgspec.convert(each.changed, list[StatedChange]),
            )
            for each in reversed(states[-arguments.limit :])
        ]  # fmt: skip
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
        if self._is_shared:
            for each in known:
                if not each.fixed and is_of_each_node(tuple(each.key)):
                    each.fixed = WHY_OF_EACH_NODE
        return SettingsKnown(
            manages=self._manages(managed),
            source=self._settings.source,
            revision=revision_of(text, managed.text),
            settings=known,
            in_force=not (fault or is_waiting or (reload and reload.get("ended_at") is None)),
            waiting=waiting,
            fault=fault,
            reload=reload,
            nodes=self._trouble() if self._shared is not None else "",
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

    def _states(self) -> tuple[list[State], list[Fault]]:
        return self._history_file.read()

    # -- changing

    async def _apply(self, session: Session, text: str, revision: str, *, check: bool) -> SettingsChanged:
        """Checks the new text, and unless ``check``, writes it and asks for the reload."""
        answer, checked = await self._view.in_thread(self._checked, text, revision, not check)
        if check or answer.faults:
            return answer
        await self._view.in_thread(self._write, session, text, answer, checked)
        answer.applied = True
        asyncio.get_running_loop().call_later(ASK_S, self._ask_for_reload)
        return answer

    def _checked(self, text: str, revision: str, must_match: bool) -> tuple[SettingsChanged, Checked]:
        """Returns the answer, and for which texts of the files it is."""
        file_text, _, managed = self._read()
        return self._answer(text, revision, must_match, file_text, managed), Checked(file_text, managed.text)

    def _answer(self, text: str, revision: str, must_match: bool, file_text: str, managed: Managed) -> SettingsChanged:
        if not self._manages(managed):
            raise NotManaged("[portal] manages is false: settings are changed in the configuration file only")
        now = revision_of(file_text, managed.text)
        if revision != now if must_match else revision not in ("", now):
            raise _other_revision(now)
        after = revision_of(file_text, text)
        if self._is_shared and (keys := of_each_node(tomllib.loads(text))):
            return _refused([KeyFault(key=_dotted(key), reason=WHY_OF_EACH_NODE) for key in keys], after)
        try:
            new, _ = self._files.load_managed(Path(self._settings.source), text)
        except ConfigError as error:
            faults = [KeyFault(key=_dotted(each.key), reason=each.reason) for each in error.faults]
            return _refused(faults or [KeyFault(key="", reason=str(error))], after)
        old = self._in_force()
        if faults := change_faults(old, new, self._disk):
            return _refused(faults, after)
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

    def _write(self, session: Session, text: str, answer: SettingsChanged, checked: Checked) -> None:
        """Writes the managed file, then the history. Raises FaultError."""
        changed = [msgspec.to_builtins(each) for each in answer.changed[:VALUES_KEPT]]
        state = State(answer.revision, time.time(), session.who, session.why, changed, text)
        if self._is_shared:
            self._write_for_all(state, checked)
            return
        managed = self._unchanged(checked)
        try:
            self._put(managed.path, text)
        except OSError as error:
            raise NotManaged(f"{managed.path}: {error.strerror}", code=Code.INTERNAL) from error
        try:
            self._history_file.append(state)
        except OSError as error:
            why = f"{self._settings.home / HISTORY}: {error.strerror}"
            raise NotManaged(f"{why}; {self._put_back(managed)}", code=Code.INTERNAL) from error

    @property
    def _is_shared(self) -> bool:
        return self._shared is not None and self._shared.is_on()

    def _unchanged(self, checked: Checked) -> Managed:
        """Returns the managed file, if both files are those that were checked. Raises NotManaged."""
        file_text, _, managed = self._read()
        if (file_text, managed.text) != checked:
            raise _other_revision(revision_of(file_text, managed.text))
        return managed

    def _write_for_all(self, state: State, checked: Checked) -> None:
        """Writes a state into the database of the nodes, then here. Raises FaultError.

        The file may have become a newer one since it was checked: what counts is that the database has what was checked.
        """
        assert self._shared is not None
        if why := self._shared.why_not(MANAGED):
            raise NotManaged(f"{why}; nothing was changed")
        state.node = self._settings.nodes.node or socket.gethostname()
        with self._shared.changing(MANAGED) as change:
            newest = change.newest
            _, _, managed = self._read()  # again: nothing but a hand changes it now
            is_newest = newest.state.text == managed.text
            if not is_newest and all(each.text != managed.text for each in change.taken_states()):
                raise NotManaged(
                    f"{managed.path} was changed by hand, and differs from what all nodes have; waypost node settings"
                    " --take managed, or --give managed, decides; nothing was changed"
                )
            if newest.state.text != checked.managed_text or not is_newest:
                raise NotManaged(_meanwhile(newest.state))
            self._unchanged(checked)
            for reference in dict.fromkeys(references_in(tomllib.loads(state.text))):
                change.keep(reference, self._kept.read(reference))
            written = change.write(state)
            with contextlib.suppress(OSError):  # the process that takes over what other nodes change does it
                self._put(managed.path, written.text)
                self._history_file.append(written)
                change.taken(written.version)

    def _trouble(self) -> str:
        return trouble_in(self._settings.node_run_directory, (MANAGED, TUNED), time.time())

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


def _other_revision(now: str) -> NotManaged:
    return NotManaged(
        f"the settings were changed meanwhile, in the file or by another operator: their revision is {now}; look again"
    )


def _meanwhile(newest: State) -> str:
    """Returns why a change is refused that was made for another state than the database has."""
    keys = ", ".join(str(each.get("key")) for each in newest.changed[:3])
    why = f" ({newest.why})" if newest.why else ""
    changed = f"{newest.who or 'unknown'} at node {newest.node} changed {keys or 'them'}{why}"
    return f"the settings were changed meanwhile: {changed}; nothing was changed here, look again in a second"
