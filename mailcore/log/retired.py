"""Files of segments that may be retired: no part of their lane any more, kept for data of messages in them.

A segment is retired by a rename, once, while deliverers may be about to open it. A process that opens it for data therefore
tries both names. Readers of envelopes know the first name only.

Keeps law: retained-data-stays (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable

from mailcore.log.segment import RETIRED_SUFFIX, SUFFIX

__all__ = ["open_either", "retired_path"]


def retired_path(path: str) -> str:
    """Returns the path that a segment has when it is retired."""
    return path.removesuffix(SUFFIX) + RETIRED_SUFFIX


def open_either(opener: Callable[[str], int], path: str) -> int:
    """Opens a segment by ``opener`` (a method of Disk) under the name that it has now; any other file under its own name.

    ``path`` is either name of the segment. Raises OSError; FileNotFoundError if no such file is there.
    """
    if not path.endswith((SUFFIX, RETIRED_SUFFIX)):
        return opener(path)
    live = path.removesuffix(RETIRED_SUFFIX).removesuffix(SUFFIX) + SUFFIX
    retired = retired_path(live)
    # The rename may be to come, or come between two calls.
    for each in (live, retired) if path == live else (retired, live, retired):
        with contextlib.suppress(FileNotFoundError):
            return opener(each)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
