"""The directory of the kept files: a file is written once, under a name that says what is in it, and removed when nothing
needs it.

- law: kept-files-never-change. A file is written under another name, synced, and renamed; its directory is synced before
  the operation is answered. So a setting that refers to a file is never in front of the file, and a process that is killed in
  the middle leaves either the whole file or one under a name that no setting has.
- A file stays as long as a setting refers to it. One that only earlier states of the settings refer to stays as long as these;
  a private key among them for KEY_DAYS after it was last in use. One that nothing refers to stays for STAGED_DAYS.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path

from mailcore.config.kept_files import (
    CA,
    CERTIFICATE,
    DIRECTORY,
    DKIM,
    KEY,
    KINDS,
    PREFIX,
    Reference,
    kept_path,
    reference_of,
)
from mailcore.control.protocol.kept import TEXT_MAX
from mailcore.faults import Code, FaultError

__all__ = ["KeptStore", "NotKept"]

FILES_MAX = 2_000
BYTES_MAX = 512 << 20
STAGED_DAYS = 30  # a DKIM key waits for its DNS record, a request for its certificate
KEY_DAYS = 90  # of a private key that is not in use any more
DAY_S = 86_400
CONTENT_MAX = 4 * TEXT_MAX  # bytes of UTF-8
PUBLIC_MODE, SECRET_MODE = 0o644, 0o640
PUBLIC = (CERTIFICATE, CA)  # read by every command; maps have addresses of people
NEW = ".new"  # before the name is whole


class NotKept(FaultError):
    """A file that can't be kept or removed."""

    default = Code.CONFLICT


class KeptStore:
    """Reads and writes the files below ``home``. Nothing here is called by two threads at a time."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._home = home
        self._clock = clock

    def files(self) -> Iterator[tuple[Reference, os.stat_result]]:
        """Yields what is kept, with its status."""
        for kind in KINDS:
            with contextlib.suppress(FileNotFoundError):
                for entry in sorted(os.scandir(self._home / DIRECTORY / kind), key=lambda each: each.name):
                    reference = Reference.parse(f"{PREFIX}{kind}/{entry.name}")
                    if reference is not None and entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(FileNotFoundError):
                            yield reference, entry.stat(follow_symlinks=False)

    def read(self, reference: Reference) -> bytes:
        """Returns what a file has. Raises NotKept."""
        try:
            with open(kept_path(self._home, reference), "rb") as file:
                content = file.read(CONTENT_MAX + 1)
        except OSError as error:
            raise NotKept(f"{reference} is not kept here: {error.strerror}", code=Code.NOT_FOUND) from None
        if reference_of(reference.kind, reference.name, content) != reference:
            raise NotKept(f"{reference}: the file was changed by hand", code=Code.INTERNAL)
        return content

    def path(self, reference: Reference) -> Path:
        """Returns the path of a file."""
        return kept_path(self._home, reference)

    def put(self, kind: str, name: str, content: bytes) -> Reference:
        """Writes a file, unless it is there, and syncs it and its name. Raises NotKept, and ValueError for the name."""
        reference = reference_of(kind, name, content)
        path = kept_path(self._home, reference)
        try:
            self._refuse_too_much(len(content))
            self._make_directory(path.parent.parent)
            self._make_directory(path.parent)
            new = path.with_name(f"{path.name}{NEW}")
            with contextlib.suppress(FileNotFoundError):
                new.unlink()
            mode = PUBLIC_MODE if kind in PUBLIC else SECRET_MODE
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            with open(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            new.replace(path)
            _sync(path.parent)
        except OSError as error:
            raise NotKept(f"{error.filename or path}: {error.strerror}", code=Code.INTERNAL) from error
        return reference

    def remove(self, reference: Reference) -> None:
        """Removes a file; one that is not there is removed already. Raises NotKept."""
        path = kept_path(self._home, reference)
        try:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                _sync(path.parent)
        except OSError as error:
            raise NotKept(f"{path}: {error.strerror}", code=Code.INTERNAL) from error

    def tidy(self, used: Set[Reference], left_at: Mapping[Reference, float]) -> list[Reference]:
        """Removes what nothing needs, and returns it. ``used``: by settings; ``left_at``: when a file that only earlier states
        refer to went out of use."""
        now, removed = self._clock(), []
        for reference, status in list(self.files()):
            if reference in used:
                continue
            if reference in left_at:
                old = reference.kind in (KEY, DKIM) and now - left_at[reference] > KEY_DAYS * DAY_S
            else:
                old = now - status.st_mtime > STAGED_DAYS * DAY_S
            if old:
                self.remove(reference)
                removed.append(reference)
        for kind in KINDS:  # of a process that was killed in the middle
            for path in (self._home / DIRECTORY / kind).glob(f"*{NEW}"):
                with contextlib.suppress(OSError):
                    path.unlink()
        return removed

    def _refuse_too_much(self, more: int) -> None:
        sizes = [status.st_size for _, status in self.files()]
        if len(sizes) >= FILES_MAX or sum(sizes) + more > BYTES_MAX:
            raise NotKept(
                f"at most {FILES_MAX} files of {BYTES_MAX >> 20} MiB together are kept; remove some that no setting uses",
                code=Code.BUSY,
            )

    def _make_directory(self, path: Path) -> None:
        """Makes a directory; with users of their own for receivers and deliverers, the supervisor has made it at the start."""
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o750)
            path.chmod(0o755 if path.name in (DIRECTORY, *PUBLIC) else 0o750)
            _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
