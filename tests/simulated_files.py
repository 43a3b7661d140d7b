"""Files and directories of the simulated disk: what processes see, what is on the platter, what a power loss leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.power_loss import SECTOR, Choice

__all__ = ["Change", "Crashed", "Directory", "File", "Killed", "Node", "apply", "patch"]

Change = tuple[int, bytes | None]  # bytes written at an offset; None: the file was cut there


@dataclass(eq=False)
class File:
    platter: bytearray = field(default_factory=bytearray)
    cache: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    modified: float = 0.0
    bad: list[tuple[int, int]] = field(default_factory=list)  # byte ranges that can't be read


@dataclass(eq=False)
class Directory:
    now: dict[str, Node] = field(default_factory=dict)
    platter: dict[str, Node] = field(default_factory=dict)
    pending: list[dict[str, Node | None]] = field(default_factory=list)  # one for each change, atomic in itself

    def change(self, names: dict[str, Node | None]) -> None:
        apply(self.now, names)
        self.pending.append(names)


Node = File | Directory


def apply(entries: dict[str, Node], names: dict[str, Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def patch(data: bytearray, offset: int, piece: bytes | None) -> None:
    if piece is None:
        del data[offset:]
        return
    if len(data) < offset:
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


class Killed:
    """Everything as it is; what waits for a sync waits on."""

    def __init__(self) -> None:
        self._made: dict[int, Node] = {}

    def directory(self, old: Directory) -> Directory:
        new = Directory()
        self._made[id(old)] = new
        new.now = {name: self.node(node) for name, node in old.now.items()}
        new.platter = {name: self.node(node) for name, node in old.platter.items()}
        new.pending = [
            {name: None if node is None else self.node(node) for name, node in names.items()} for names in old.pending
        ]
        return new

    def node(self, old: Node) -> Node:
        if id(old) not in self._made:
            if isinstance(old, Directory):
                return self.directory(old)
            self._made[id(old)] = File(
                bytearray(old.platter), bytearray(old.cache), list(old.pending), old.modified, list(old.bad)
            )
        return self._made[id(old)]


class Crashed:
    """What a power loss leaves."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._made: dict[int, Node] = {}

    def directory(self, old: Directory) -> Directory:
        entries = dict(old.platter)
        for names in old.pending:
            if self._choice.pick(2):
                apply(entries, names)
        new = Directory()
        self._made[id(old)] = new
        new.now = {name: self.node(entries[name]) for name in sorted(entries)}
        new.platter = dict(new.now)
        return new

    def node(self, old: Node) -> Node:
        if id(old) not in self._made:
            self._made[id(old)] = self.directory(old) if isinstance(old, Directory) else self._file(old)
        return self._made[id(old)]

    def _file(self, old: File) -> File:
        data = bytearray(old.platter)
        for offset, piece in old.pending:
            self._some_of(data, offset, piece)
        return File(data, bytearray(data), [], old.modified, list(old.bad))

    def _some_of(self, data: bytearray, offset: int, piece: bytes | None) -> None:
        choice = self._choice
        if piece is None:
            if choice.pick(2):
                patch(data, offset, piece)
            return
        grows = len(data) < offset + len(piece)
        if len(piece) == 1 and not grows:  # a mark
            if choice.pick(2):
                patch(data, offset, piece)
            return
        outcome = choice.pick(3 if choice.coarse else 5)
        if outcome == 1 or (outcome == 2 and len(piece) == 1):
            patch(data, offset, piece)
        elif outcome == 2:
            patch(data, offset, piece[: choice.cut(len(piece))])
        elif outcome == 3 and grows:  # the length has reached the disk, the data has not
            patch(data, max(offset, len(data)), bytes(offset + len(piece) - max(offset, len(data))))
        elif outcome == 4:  # some sectors
            for at in range(0, len(piece), SECTOR):
                if choice.pick(2):
                    patch(data, offset + at, piece[at : at + SECTOR])
