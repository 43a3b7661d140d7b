"""Defines the operations about the settings: what is in force and from which file, and changes to the managed ones."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result
from mailcore.faults import Fault

__all__ = [
    "CHANGES_MAX",
    "HISTORY_MAX",
    "OPERATIONS",
    "KeyFault",
    "KnownSetting",
    "SettingChange",
    "SettingsArguments",
    "SettingsChanged",
    "SettingsHistory",
    "SettingsHistoryArguments",
    "SettingsKnown",
    "SettingsReturnArguments",
    "StateBefore",
    "StatedChange",
    "TunedLayer",
]

CHANGES_MAX = 1_000
HISTORY_MAX = 1_000
KeyPart = Annotated[str, Meta(min_length=1, max_length=400)]
Key = Annotated[list[KeyPart], Meta(min_length=1, max_length=6)]
Revision = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]


class SettingChange(Arguments, frozen=True, kw_only=True):
    """One value: ``["relay", "domains"]``; None undoes a change, so that the configuration file or the default counts again.

    ``removed``: the value or row of the configuration file at the key does not count, until None undoes that.
    """

    key: Key
    value: Any = None
    removed: bool = False


class SettingsArguments(Arguments, frozen=True, kw_only=True):
    """Changes of managed settings, which are made together or not at all."""

    changes: Annotated[list[SettingChange], Meta(min_length=1, max_length=CHANGES_MAX)]
    revision: Revision = ""  # that the changes were made for; another one in force is a conflict; "": of no check alone
    check: bool = False  # only check, and tell what would change


class SettingsReturnArguments(Arguments, frozen=True, kw_only=True):
    """The state to return to, by its revision, and the revision that is in force."""

    to: Revision
    revision: Revision
    check: bool = False


class SettingsHistoryArguments(Arguments, frozen=True, kw_only=True):
    """How many states to list, newest first."""

    limit: Annotated[int, Meta(ge=1, le=HISTORY_MAX)] = 50


class TunedLayer(Result):
    """A value that was set live: it counts above the files."""

    value: Any
    until: float | None = None  # wall clock; None: until it is removed


class KnownSetting(Result):
    """A value that is set in one of the files or live, or is removed. ``value`` and ``origin`` are of the files."""

    key: list[str]
    value: Any  # None: it is removed, or only tuned
    origin: str  # "managed", "file", "removed" or "tuned"
    below: Any = None  # the value of the configuration file, where another one counts, or none
    fixed: str = ""  # why it can't be managed; "" if it can
    tuned: list[TunedLayer] = []  # values set live, which count above this; the first one is in force
    removed: list[str] = []  # the key that is removed: this one, or that of the row; [] if it is not


class SettingsKnown(Result):
    """All values that are set, with the revision of the files. Other settings have their defaults."""

    manages: bool  # False: [portal] manages is false
    source: str  # the configuration file
    revision: str
    settings: list[KnownSetting]
    in_force: bool  # False: the files say something else than the processes have, or a reload is under way
    waiting: list[str] = []  # keys whose values in the files are not in force
    fault: str = ""  # why the files can't come into force
    reload: dict[str, Any] = {}  # the result of the last reload; {} if there was none
    nodes: str = ""  # why this node has other settings than the database of the nodes, or may have


class KeyFault(Result):
    """A value that is refused: its key as dotted names, and why."""

    key: str
    reason: str


class StatedChange(Result):
    """A key whose value becomes another."""

    key: str
    before: Any
    after: Any


class SettingsChanged(Result):
    """The effect of a change that was made, or is only checked."""

    faults: list[KeyFault]  # then nothing is changed
    changed: list[StatedChange]
    restarts: list[str]  # roles whose processes start again
    revision: str  # of the files after it
    applied: bool  # it is written, and a reload is asked for


class StateBefore(Result):
    """A state of the managed settings, and the change that made it."""

    revision: str
    at: float  # wall clock
    who: str
    why: str
    changed: list[StatedChange]
    node: str = ""  # where it was made, of nodes that share their settings


class SettingsHistory(Result):
    """The states, newest first."""

    states: list[StateBefore]
    faults: list[Fault] = []  # of lines of the history that can't be read


_READ, _CHANGE, _CONTROL = Access.READ, Access.CHANGE, Answerer.CONTROL
OPERATIONS = (
    Operation("settings", Arguments, _READ, _CONTROL, "List the settings that are set, and where.", SettingsKnown),
    Operation(
        "settings_change",
        SettingsArguments,
        _CHANGE,
        _CONTROL,
        "Change managed settings, or check a change; a reload follows.",
        SettingsChanged,
    ),
    Operation(
        "settings_return",
        SettingsReturnArguments,
        _CHANGE,
        _CONTROL,
        "Return to an earlier state of the managed settings, or check it; a reload follows.",
        SettingsChanged,
    ),
    Operation(
        "settings_history",
        SettingsHistoryArguments,
        _READ,
        _CONTROL,
        "List earlier states of the managed settings.",
        SettingsHistory,
    ),
)
