"""The last good certificate of each pair of files, with its key, which all receivers share in memory.

A receiver that is restarted while the files are bad would have no TLS, and take mail in the clear, while the others still use
the certificate before. So each receiver leaves here what it uses, and a new one begins with it.

Laws
- Keys are in memory alone: two files without a name (memfd_create(2)) that only the supervisor and the receivers have open.
- What a receiver that is killed had written by half is not used: the content before is whole in the other file.

Keeps law: certificate-stays-good (docs/laws.md).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Sequence

import msgspec

__all__ = ["KEPT", "KeptPairs", "make_kept"]

KEPT = "WAYPOST_KEPT"  # for a receiver: the descriptors of the two files
_DIGEST_BYTES = 32


class _Content(msgspec.Struct, array_like=True, frozen=True):
    number: int  # of the writing; the higher one counts
    pairs: dict[str, tuple[bytes, bytes]]  # by the names of the files: certificate and key, as in them


_decode = msgspec.msgpack.Decoder(_Content).decode
_NOTHING = _Content(0, {})


def make_kept() -> list[int]:
    """Returns the descriptors for ``KeptPairs``. Raises OSError."""
    made = [os.memfd_create("waypost-kept"), os.memfd_create("waypost-kept")]
    for descriptor in made:
        os.fchmod(descriptor, 0)  # it is used by its descriptor, never by a name in /proc
    return made


class KeptPairs:
    """Reads and writes what is kept. ``descriptors`` are the supervisor's; empty: nothing is kept."""

    def __init__(self, descriptors: Sequence[int] = ()) -> None:
        self._descriptors = descriptors

    def find(self, certificate: str, key: str) -> tuple[bytes, bytes] | None:
        """Returns the content of the two files when they were last good; None if that is not known."""
        return self._newest()[1].pairs.get(_name(certificate, key))

    def keep(self, certificate: str, key: str) -> bool:
        """Keeps the two files as they are now; False: not now, because another receiver writes or a file cannot be read."""
        if not self._descriptors:
            return True
        lock = self._descriptors[0]
        with contextlib.suppress(OSError):
            with open(certificate, "rb") as first, open(key, "rb") as second:
                pair = first.read(), second.read()
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of this process, so its end releases it
            try:
                self._write(_name(certificate, key), pair)
            finally:
                fcntl.lockf(lock, fcntl.LOCK_UN)
            return True
        return False

    def _write(self, name: str, pair: tuple[bytes, bytes]) -> None:
        at, now = self._newest()
        if now.pairs.get(name) == pair:
            return
        data = msgspec.msgpack.encode(_Content(now.number + 1, {**now.pairs, name: pair}))
        other = self._descriptors[1 - at]
        os.ftruncate(other, 0)
        os.pwrite(other, hashlib.sha256(data).digest() + data, 0)

    def _newest(self) -> tuple[int, _Content]:
        """Returns which file has the newest content that is whole, and the content."""
        found = [_read(descriptor) for descriptor in self._descriptors]
        if not found:
            return 0, _NOTHING
        at = max(range(len(found)), key=lambda number: found[number].number)
        return at, found[at]


def _name(certificate: str, key: str) -> str:
    return f"{certificate}\0{key}"


def _read(descriptor: int) -> _Content:
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    digest, data = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if not data or hashlib.sha256(data).digest() != digest:
        return _NOTHING
    return _decode(data)
