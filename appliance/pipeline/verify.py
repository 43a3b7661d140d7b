"""Whether event files are what was written, to the last byte, before silver is made of them.

Spark checks pages as it reads them; what tells it where they lie, how to read them and which to pass over it believes. So
all bytes are summed up first, at a gigabyte a second of one core, and only when a day is to be made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from appliance.pipeline.events import EventFile, SetAside
from mailcore.events.checksum import ChecksumError, check

__all__ = ["whole"]


def whole(files: Sequence[EventFile], aside: SetAside) -> bool:
    """Whether all are; those that are not, or that nobody can read now, are set aside."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = [(file, error) for file, error in zip(files, pool.map(_fault, files), strict=True) if error is not None]
    for file, error in found:
        aside.found(f"dt={file.dt}/{file.path.name}", file.identity, error)
    return not found


def _fault(file: EventFile) -> Exception | None:
    try:
        check(file.path, whole=True)
    except (ChecksumError, OSError) as error:
        return error
    return None
