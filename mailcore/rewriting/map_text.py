"""The text of a file of entries, as Postfix's postmap reads it: one entry a line.

A line that begins with a space continues the one before; ``#`` begins a comment. Needs no library, so that also a process that
rewrites no address can read a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

__all__ = ["MapFault", "logical_lines", "read_text"]

FILE_BYTES_MAX = 64 << 20  # a million lines
NOT_REGULAR = "cannot be read: it is not a regular file"


class MapFault(Exception):
    """A file of entries cannot be used. The message is for the operator, one line for each fault."""


def read_text(path: str) -> str:
    """Returns the text of a regular file, without a byte order mark; never waits for a writer. Raises MapFault."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise MapFault(f"{path}: {NOT_REGULAR}")
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise MapFault(f"{path}: the file is larger than {FILE_BYTES_MAX} bytes")
        return data.decode("utf-8-sig")
    except IsADirectoryError:
        raise MapFault(f"{path}: {NOT_REGULAR}") from None
    except OSError as error:
        raise MapFault(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        at = error.object.count(b"\n", 0, error.start) + 1
        raise MapFault(f"{path}:{at}: the line is not UTF-8") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # of a named pipe, open(2) without it waits for a writer


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields each logical line with the number of its first one."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line[0].isspace() and parts:
            parts.append(line.strip())
            continue
        if parts:
            yield begun, " ".join(parts)
        begun, parts = number, [line.strip()]
    if parts:
        yield begun, " ".join(parts)
