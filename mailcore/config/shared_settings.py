"""The settings that all nodes have once, as processes of a node see them: values set live, and managed settings.

A change is written into the database of the nodes before it is in this node's file; the file is a copy. Here is what a process
is given that makes changes, what is written down for those who ask, and which keys are each node's own.

Must not know: a database.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from mailcore.config.kept_files import Reference
from mailcore.config.lines import Path as Key
from mailcore.config.managed import keys_of, removed_keys
from mailcore.config.managed_history import State
from mailcore.config.settings import Settings

__all__ = [
    "KINDS", "MANAGED", "STATUS", "TUNED", "WHY_OF_EACH_NODE", "Changing", "KindStatus", "Newest", "OpenShared", "Shared",
    "SharedStatus", "is_of_each_node", "none_shared", "of_each_node", "status_in",
]  # fmt: skip

MANAGED, TUNED = "managed", "tuned"
KINDS = (MANAGED, TUNED)
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


class Changing(Protocol):
    """A change that is being made: no other process of this node makes one meanwhile."""

    @property
    def newest(self) -> Newest:
        """Returns what the database has."""

    def taken_states(self) -> Iterator[State]:
        """Yields the states that are not older than what this node has taken over. Raises FaultError."""

    def keep(self, reference: Reference, content: bytes) -> None:
        """Gives a kept file to all nodes. Raises FaultError."""

    def write(self, state: State) -> State:
        """Makes a state the newest one, and returns it with its version. Raises FaultError; then nothing has changed, unless
        its code is OUTCOME_UNKNOWN."""

    def taken(self, version: int) -> None:
        """Writes down that this node has a version. Raises OSError."""


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


class SharedStatus(msgspec.Struct):
    """The file about the settings of all nodes. ``trouble``: why the database could not be asked."""

    at: float = 0.0
    trouble: str = ""
    kinds: dict[str, KindStatus] = {}

    def troubles(self) -> Iterator[str]:
        """Yields why this node has other settings than the database, or may have."""
        if self.trouble:
            yield self.trouble
        for each in self.kinds.values():
            if each.trouble:
                yield each.trouble


def status_in(run_directory: Path) -> SharedStatus | None:
    """Returns what the node has written down; None if it shares no settings."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((run_directory / STATUS).read_bytes(), type=SharedStatus)
    return None


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
