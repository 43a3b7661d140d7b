"""Checks that event files are unchanged, to the last byte, before rows are read from them.

Spark checks the pages that it reads, but trusts the metadata that says where they are. So all bytes are checked first, at 1
GB a second of one core, and only when a day is to be made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from appliance.pipeline.events import EventFile, SetAside
from mailcore.events.checksum import ChecksumError, check

__all__ = ["all_unchanged"]


def all_unchanged(files: Sequence[EventFile], aside: SetAside) -> bool:
    """Returns whether all files are unchanged; changed and unreadable ones are set aside."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [(file, error) for file, error in zip(files, pool.map(_fault, files), strict=True) if error is not None]
    for file, error in found:
        aside.found(file.name, file.identity, error)
    return not found


def _fault(file: EventFile) -> Exception | None:
    try:
        check(file.path, whole=True)
    except (ChecksumError, OSError) as error:
        return error
    return None
