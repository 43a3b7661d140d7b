"""The settings that all nodes have once, and the users who log in, as processes of a node see them.

A change is written into the database of the nodes before it is in this node's file; the file is a copy. Here is what a process
is given that makes changes, what is written down for those who ask, and which keys are each node's own.

Must not know: a database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from mailcore.config.kept_files import Reference
from mailcore.config.lines import Path as Key
from mailcore.config.managed import keys_of, removed_keys
from mailcore.config.managed_history import State
from mailcore.config.settings import Settings
from mailcore.faults import Code, FaultError

__all__ = [
    "KINDS", "MANAGED", "NAMES", "STATUS", "TUNED", "USERS", "WHY_OF_EACH_NODE", "ChangedMeanwhile", "Changing",
    "KindStatus", "Newest", "OpenShared", "Shared", "SharedStatus", "is_of_each_node", "none_shared", "of_each_node",
    "status_in", "trouble_in",
]  # fmt: skip

MANAGED, TUNED, USERS = "managed", "tuned", "users"
KINDS = (MANAGED, TUNED, USERS)
NAMES = {MANAGED: "managed settings", TUNED: "tuned settings", USERS: "users"}  # for people, and for what is sealed
SILENT_S = 15.0  # the process that writes STATUS does it every two seconds
STATUS = "settings-of-nodes.json"  # in the run directory of the node; without it settings are this node's alone
_OF_EACH_NODE = (
    ("receiver", "listen"),
    ("receiver", "hostname"),
    ("deliverer", "hostname"),
    ("metrics", "listen"),
    ("listener",),
)
WHY_OF_EACH_NODE = "is each node's own; it is set in the configuration file of each"


class Newest(msgspec.Struct, frozen=True):
    """The newest state in the database, and its version, 0 if there is none."""

    version: int
    state: State


class ChangedMeanwhile(FaultError):
    """Raised if another node was faster: nothing was changed."""

    default = Code.CONFLICT


class Changing(Protocol):
    """A change that is being made: no other process of this node makes one meanwhile."""

    @property
    def newest(self) -> Newest:
        """Returns what the database has."""

    def taken_states(self) -> Iterator[State]:
        """Yields the states that are not older than what this node has taken over. Raises FaultError."""

    def is_ours(self, text: str) -> bool:
        """Returns whether all nodes had what the file of this node has, and not before this node took over what it has.

        Otherwise it was changed by hand. Raises FaultError, OSError.
        """

    def keep(self, reference: Reference, content: bytes) -> None:
        """Gives a kept file to all nodes. Raises FaultError."""

    def write(self, state: State) -> State:
        """Makes a state the newest one, and returns it with its version. Raises FaultError; then nothing has changed, unless
        its code is OUTCOME_UNKNOWN."""

    def taking(self, text: str) -> None:
        """Writes down what the file of this node is about to be. Raises OSError."""

    def taken(self, version: int, text: str | None = None) -> None:
        """Writes down that this node has a version, and what its file has, if ``is_ours`` is asked. Raises OSError."""


class Shared(Protocol):
    """The settings of all nodes, for a process that changes them. Its functions wait for the database."""

    def is_on(self) -> bool:
        """Returns whether this node shares its settings with others: it is one of the nodes that are in."""

    def why_not(self, kind: str) -> str:
        """Returns why this node may not change them now, because it has others; "" if it may."""

    def changing(self, kind: str) -> contextlib.AbstractContextManager[Changing]:
        """Begins a change. Raises FaultError if the database cannot be asked: nothing has changed."""


class OpenShared(Protocol):
    """Returns the settings of all nodes; None without a database."""

    def __call__(self, settings: Settings) -> Shared | None:
        """Returns them for a process with these settings."""


def none_shared(settings: Settings) -> Shared | None:
    """Returns None: this node is alone."""
    return None


class KindStatus(msgspec.Struct):
    """The version of a kind that this node has, and the newest version that the database has."""

    version: int = 0
    newest: int = 0
    trouble: str = ""

    @property
    def why_other(self) -> str:
        """Returns why this node has something else than the database; "" if it has the same."""
        if self.trouble or self.version == self.newest:
            return self.trouble
        return f"this node has version {self.version} of {self.newest}"


class SharedStatus(msgspec.Struct):
    """The file about the settings of all nodes. ``trouble``: why the database could not be asked.

    All who tell a person whether this node has what all have ask here, so that they say the same.
    """

    at: float = 0.0
    trouble: str = ""
    kinds: dict[str, KindStatus] = {}

    def silence(self, now: float) -> str:
        """Returns that what this node has was not compared lately, so that all else here may be old; "" if it was."""
        age_s = now - self.at
        return f"nothing has looked at them for {age_s:.0f} s" if age_s > SILENT_S else ""

    def troubles(self, now: float, kinds: Collection[str] = KINDS) -> Iterator[str]:
        """Yields why this node has something else of these kinds than the database, or may have. ``now``: wall clock."""
        if why := self.silence(now) or self.trouble:
            yield why
        for kind in kinds:
            if kind in self.kinds and (why := self.kinds[kind].why_other):
                yield why


def status_in(run_directory: Path) -> SharedStatus | None:
    """Returns what the node has written down; None if it shares no settings."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((run_directory / STATUS).read_bytes(), type=SharedStatus)
    return None


def trouble_in(run_directory: Path, kinds: Collection[str], now: float) -> str:
    """Returns why this node has something else of these kinds than the database, or may have; "" if it has the same."""
    status = status_in(run_directory)
    return "; ".join(status.troubles(now, kinds)) if status is not None else ""


def is_of_each_node(key: Key) -> bool:
    """Returns whether a key is each node's own."""
    names = tuple(part for part in key if isinstance(part, str))
    return any(names[: len(each)] == each for each in _OF_EACH_NODE)


def of_each_node(document: Mapping[str, Any]) -> list[Key]:
    """Returns the keys of a managed document that cannot be the same for all nodes."""
    given: Iterable[Key] = (
        *keys_of({name: value for name, value in document.items() if name != "removed"}),
        *removed_keys(document),
    )
    return [key for key in given if is_of_each_node(key)]
