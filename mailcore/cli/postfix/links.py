"""``waypost-sendmail links``: the links of this program under the names of Postfix's commands, for packages and Ansible.

It is the one list of these links. A file in the place of one that is not a link to Waypost belongs to another mail server: then
nothing is changed at all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence

from mailcore.cli.postfix.exits import OK, UNAVAILABLE, USAGE, Ended

__all__ = ["LINKS", "PROGRAM", "links"]

PROGRAM = "waypost-sendmail"
LINKS = (
    "/usr/sbin/sendmail",
    "/usr/bin/mailq",
    "/usr/bin/newaliases",
    "/usr/sbin/postqueue",
    "/usr/sbin/postsuper",
    "/usr/sbin/postcat",
    "/usr/sbin/qshape",
)
_USAGE = "links [--json | --install | --remove] [--root DIR] [--to PROGRAM]"


def links(argv: Sequence[str]) -> int:
    """Lists, makes or removes the links; prints those that it changed. Raises Ended, OSError."""
    flags, root, target = _read(argv)
    if flags == ["--json"]:
        print(json.dumps(list(LINKS)))
    elif not flags:
        print("\n".join(LINKS))
    else:
        paths = [os.path.join(root, path.lstrip("/")) if root else path for path in LINKS]
        changed = _install(paths, target) if flags == ["--install"] else _remove(paths)
        for path in changed:
            print(path)
    return OK


def _read(argv: Sequence[str]) -> tuple[list[str], str, str]:
    flags, values = [], {"--root": "", "--to": os.path.abspath(sys.argv[0])}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word in values and rest:
            values[word] = rest.pop(0)
        elif word in ("--json", "--install", "--remove"):
            flags.append(word)
        else:
            raise Ended(USAGE, f"{word}: allowed: {_USAGE}")
    if len(flags) > 1:
        raise Ended(USAGE, f"{' '.join(flags)}: only one of them; allowed: {_USAGE}")
    if flags == ["--install"] and (os.path.basename(values["--to"]) != PROGRAM or not os.path.isabs(values["--to"])):
        raise Ended(USAGE, f"--to {values['--to']}: must be the whole path of {PROGRAM}")
    return flags, values["--root"], values["--to"]


def _install(paths: Sequence[str], target: str) -> Iterator[str]:
    if foreign := [path for path in paths if os.path.lexists(path) and not _is_ours(path)]:
        raise Ended(
            UNAVAILABLE,
            f"{', '.join(foreign)}: belongs to another mail server; remove its package first. Nothing is changed",
        )
    for path in paths:
        if os.path.lexists(path) and os.readlink(path) == target:
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = f"{path}.waypost-new"
        if os.path.lexists(new):
            os.unlink(new)
        os.symlink(target, new)
        os.replace(new, path)
        yield path


def _remove(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if _is_ours(path):
            os.unlink(path)
            yield path


def _is_ours(path: str) -> bool:
    """Returns whether a path is a link to a Waypost of any release, which may be gone."""
    return os.path.islink(path) and os.path.basename(os.readlink(path)) == PROGRAM
