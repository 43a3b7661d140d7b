"""A file of the maildrop: one message that a local program submitted, before Waypost has taken it.

```
 0          8                 16             24        28        32
 +----------+-----------------+--------------+---------+---------+--------------------------+-------- - - +
 | WAYDROP1 | submission u64  | data u64     | CRC u32 | CRC u32 | submission (MessagePack) | data        |
 +----------+-----------------+--------------+---------+---------+--------------------------+-------- - - +
```

The two numbers are lengths in bytes. The first CRC-32C covers the head's first 24 bytes and the submission, the second one the
data. The data is as the author wrote it, with any line ends. The head is written last; the file is synced under a name that
begins with a dot, then it gets its name, and the names are synced (law: submitted-is-durable). So a file with a name is whole,
or it is damaged.

A user may write into the maildrop and not read it: only its owner can list it. A file's content is from outside, and
all of it is checked.

Keeps law: submitted-is-durable (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import struct
from collections.abc import Iterator

import google_crc32c
import msgspec

from mailcore.envelope import Options
from mailcore.log.disk import Disk
from mailcore.queue.from_maildrop import DIRECTORY, names_of

__all__ = [
    "ASIDE",
    "DIRECTORY",
    "PIECE_BYTES",
    "Draft",
    "Dropped",
    "DroppedDamaged",
    "Submission",
    "is_unfinished",
    "names_of",
]

ASIDE = "damaged."  # begins the name of a file that was set aside
PIECE_BYTES = 64 * 1024  # read or written at once
SUBMISSION_BYTES_MAX = 16 << 20  # 100 000 recipients fit
RECIPIENTS_MAX = 100_000
_UNFINISHED = "."
_MAGIC = b"WAYDROP1"
_HEAD = struct.Struct("<8sQQII")
_CHECKED = 24
_extend = google_crc32c.extend


class Submission(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The envelope that the author's program gave. Fields are only added at the end, with a default."""

    sender: str  # "" for a bounce
    recipients: tuple[str, ...]
    submitted_at: float  # wall clock, seconds
    user: str = ""  # login name of the author
    full_name: str = ""  # for a From field that is missing
    options: Options = ()  # parameters of MAIL
    recipient_options: tuple[Options, ...] = ()  # parameters of RCPT of each recipient; () when none has any
    verify: tuple[str, ...] = ()  # addresses to report on: then the recipient gets the report in place of the data
    smtputf8: bool = False  # the program said so; an address beyond ASCII means the same


class DroppedDamaged(Exception):
    """Raised if the file is not a whole message; the text says why."""


def is_unfinished(name: str) -> bool:
    """Returns True for the name of a file that is still being written, or whose program was killed."""
    return name.startswith(_UNFINISHED) and bool(names_of([name.removeprefix(_UNFINISHED)]))


class Draft:
    """A message on its way into the maildrop: ``write`` its data in pieces, then ``submit``, or ``abandon``.

    All methods raise OSError; ``abandon`` ignores errors.
    """

    def __init__(self, disk: Disk, directory: str, name: str = "") -> None:
        self._disk = disk
        self._directory = directory
        self.name = name or secrets.token_hex(16)
        self._hidden = os.path.join(directory, _UNFINISHED + self.name)
        self._fd = disk.create(self._hidden)
        self._pieces: list[bytes] = []
        self.data_bytes = 0
        self._crc = 0
        self._submission = b""

    def begin(self, submission: Submission) -> None:
        """Writes what is known beside the data; comes first, and once."""
        self._submission = msgspec.msgpack.encode(submission)
        self._disk.write(self._fd, [self._submission], _HEAD.size)

    def write(self, data: bytes) -> None:
        """Appends a piece of the data."""
        assert self._submission
        self._disk.write(self._fd, [data], _HEAD.size + len(self._submission) + self.data_bytes)
        self._crc = _extend(self._crc, data)
        self.data_bytes += len(data)

    def submit(self) -> None:
        """Completes the file, and syncs it and its name. The message is kept from here on; before, there is no message."""
        disk = self._disk
        head = _HEAD.pack(_MAGIC, len(self._submission), self.data_bytes, 0, 0)
        crc = _extend(google_crc32c.value(head[:_CHECKED]), self._submission)
        disk.write(self._fd, [_HEAD.pack(_MAGIC, len(self._submission), self.data_bytes, crc, self._crc)], 0)
        disk.sync(self._fd)
        disk.replace(self._hidden, os.path.join(self._directory, self.name))
        try:
            disk.sync_directory(self._directory)
        except PermissionError:  # a user may not open the directory: then the whole file system is synced
            _sync_file_system(self._fd)
        disk.close(self._fd)
        self._fd = -1

    def abandon(self) -> None:
        """Removes the file, under both names. Files that stay, because the disk fails, are removed after a day."""
        for path in (self._hidden, os.path.join(self._directory, self.name)):
            with contextlib.suppress(OSError):
                self._disk.unlink(path)
        with contextlib.suppress(OSError):
            if self._fd >= 0:
                self._disk.close(self._fd)
        self._fd = -1


class Dropped:
    """A file of the maildrop, checked from head to end. Close it after use.

    Raises DroppedDamaged if it is not a whole message, OSError if it cannot be read.
    """

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self.name = name
        self._disk = disk
        self._fd = disk.open_foreign(os.path.join(directory, name))
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        disk = self._disk
        owner = disk.owner_of(self._fd)
        if owner is None:
            raise DroppedDamaged("not a plain file with one name")
        self.uid = owner
        head = disk.read(self._fd, _HEAD.size, 0)
        if len(head) < _HEAD.size:
            raise DroppedDamaged("shorter than its head")
        magic, submission_bytes, self.data_bytes, crc, self._data_crc = _HEAD.unpack(head)
        if magic != _MAGIC:
            raise DroppedDamaged("not a file that waypost-sendmail wrote")
        if submission_bytes > SUBMISSION_BYTES_MAX:
            raise DroppedDamaged("its submission is too big")
        self._data_at = _HEAD.size + submission_bytes
        if disk.size(self._fd) != self._data_at + self.data_bytes:
            raise DroppedDamaged("it has another size than its head says")
        body = disk.read(self._fd, submission_bytes, _HEAD.size)
        if _extend(google_crc32c.value(head[:_CHECKED]), body) != crc:
            raise DroppedDamaged("its submission does not match its checksum")
        try:
            self.submission = msgspec.msgpack.decode(body, type=Submission)
        except msgspec.MsgspecError as error:
            raise DroppedDamaged(f"its submission cannot be read: {error}") from error
        if not 0 < len(self.submission.recipients) <= RECIPIENTS_MAX:
            raise DroppedDamaged("it has no recipients, or too many")
        for _ in self.pieces():
            pass  # the whole data is compared with its checksum before any of it is used

    def pieces(self) -> Iterator[bytes]:
        """Yields the data in pieces. Raises DroppedDamaged at the end if it does not match its checksum."""
        at, crc = 0, 0
        while at < self.data_bytes:
            piece = self._disk.read(self._fd, min(PIECE_BYTES, self.data_bytes - at), self._data_at + at)
            if not piece:
                raise DroppedDamaged("its end is missing")
            crc = _extend(crc, piece)
            at += len(piece)
            yield piece
        if crc != self._data_crc:
            raise DroppedDamaged("its data does not match its checksum")

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def _sync_file_system(fd: int) -> None:
    """Syncs the file system that holds an open file, with all names in it (syncfs(2)). Raises OSError."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
