"""Looks at files with the rights of another process: what root can read, that process may not.

A child of this process takes on the ids and groups, tries to open each file, and ends. Comparing modes instead would miss the
directories above a file, access control lists and mounts.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # ``waypost status`` looks at files, too, and has no use for name servers
    from mailcore.doctor.host import Host

__all__ = ["Ids", "ids_of", "ids_of_role", "name_of_user", "unreadable"]

ANSWER_BYTES_MAX = 1 << 20


class Ids(NamedTuple):
    """The rights of a process."""

    user: int
    group: int
    groups: tuple[int, ...]


def ids_of(pid: int) -> Ids | None:
    """Returns the ids of a process in effect; None if it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = {name: values.split() for name, _, values in (line.partition(":") for line in lines)}
    return Ids(int(found["Uid"][1]), int(found["Gid"][1]), tuple(map(int, found["Groups"])))


def ids_of_role(host: Host, role: str) -> Ids | None:
    """Returns the ids of a process of the role ("receiver", "deliverer") that runs; None without one."""
    for name, process in host.processes.items():
        if name.startswith(f"{role}.") and process.pid is not None and process.is_up:
            return ids_of(process.pid)
    return None


def name_of_user(ids: Ids) -> str:
    """Returns the name of the user; otherwise its number."""
    try:
        return pwd.getpwuid(ids.user).pw_name
    except KeyError:
        return str(ids.user)


def unreadable(ids: Ids, paths: Sequence[str | Path]) -> dict[str, str] | None:
    """Returns the files that a process with these ids cannot read, with the reason; None if only root could tell."""
    names = [os.fspath(path) for path in paths]
    if ids.user == os.geteuid():
        return _tried(names)
    if os.geteuid() != 0:
        return None
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(ids.groups)
            os.setresgid(ids.group, ids.group, ids.group)
            os.setresuid(ids.user, ids.user, ids.user)
            with os.fdopen(write_end, "w") as answer:
                json.dump(_tried(names), answer)
        finally:
            os._exit(0)  # nothing of this process may run twice
    os.close(write_end)
    with os.fdopen(read_end) as answered:
        text = answered.read(ANSWER_BYTES_MAX)
    os.waitpid(child, 0)
    try:
        tried: dict[str, str] = json.loads(text)
    except ValueError:
        return None
    return tried


def _tried(names: Sequence[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            found[name] = error.strerror or str(error)
    return found
