"""A real ext4 of a few megabytes, in a file, mounted: to be filled with bytes, with files, or by another program."""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually_blocking

__all__ = ["Ext4", "another_program", "ext4"]

OTHERS = "others"  # the directory of what is not ours
# Takes every block and every inode as soon as it is free, as a program that logs and tries again does.
GREEDY = """
import os, sys, time
directory, number = sys.argv[1], 0
file = os.open(os.path.join(directory, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    try:
        while True:
            os.write(file, bytes(65536))
    except OSError:
        pass
    try:
        while True:
            os.close(os.open(os.path.join(directory, f"{number}"), os.O_CREAT | os.O_WRONLY))
            number += 1
    except OSError:
        pass
    time.sleep(0.01)
"""


class Ext4:
    """A mounted image. ``power_cut`` replaces it by what is on its disk at that moment."""

    def __init__(self, image: Path, point: Path) -> None:
        self.image = image
        self.point = point

    def mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self.image), str(self.point)], check=True, capture_output=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.point)], check=True)

    def power_cut(self) -> None:
        """Stop the processes that write before, and kill them behind it: what they did not sync is lost.

        A copy takes a while, and what is written meanwhile would be in it without what was written before. So there is one
        when nothing was: the kernel, too, writes on its own.
        """
        cut = self.image.with_suffix(".cut")

        def nothing_was_written() -> bool:
            shutil.copyfile(self.image, cut)
            return filecmp.cmp(self.image, cut, shallow=False)

        eventually_blocking(nothing_was_written, "a copy of the disk during which nothing was written")

    def after_the_power_cut(self) -> None:
        self.unmount()
        self.image = self.image.with_suffix(".cut")
        self.mount()

    def sync(self) -> None:
        """Writes this file system to its disk; os.sync would also wait for all that other programs write meanwhile."""
        subprocess.run(["sync", "--file-system", str(self.point)], check=True)

    @property
    def others(self) -> Path:
        directory = self.point / OTHERS
        directory.mkdir(exist_ok=True)
        return directory

    def fill_bytes(self, leave_bytes: int = 0) -> None:
        if leave_bytes:
            (self.others / "leave").write_bytes(bytes(leave_bytes))
        with (self.others / "bytes").open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        (self.others / "leave").unlink(missing_ok=True)
        self.sync()

    def fill_inodes(self, leave: int = 0) -> None:
        (self.others / "bytes").touch()  # for ``fill_bytes``
        with contextlib.suppress(OSError):
            for number in range(1 << 20):
                (self.others / f"inode{number}").touch()
        for number in range(leave):
            (self.others / f"inode{number}").unlink()
        self.sync()

    def empty(self) -> None:
        """Removes what is not ours."""
        shutil.rmtree(self.others)
        self.sync()

    def free(self) -> tuple[int, int]:
        """Returns the free bytes and inodes."""
        status = os.statvfs(self.point)
        return status.f_bavail * status.f_frsize, status.f_favail


@contextlib.contextmanager
def ext4(point: Path, size_bytes: int = 64 << 20, inodes: int = 1200) -> Iterator[Ext4]:
    """Mounts an empty one at ``point``; skips the test where that is impossible."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    if shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        pytest.skip("mkfs.ext4 is not installed (Debian package e2fsprogs)")
    with tempfile.TemporaryDirectory(prefix="ext4") as directory:
        image = Path(directory) / "image"
        with image.open("wb") as file:
            file.truncate(size_bytes)
        subprocess.run(
            ["mkfs.ext4", "-q", "-F", "-m", "0", "-N", str(inodes), str(image)],
            check=True,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"},
        )
        point.mkdir(parents=True, exist_ok=True)
        disk = Ext4(image, point)
        try:
            disk.mount()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no loop device can be mounted here: {error.stderr.decode().strip()}")
        try:
            yield disk
        finally:
            disk.unmount()


@contextlib.contextmanager
def another_program(disk: Ext4) -> Iterator[None]:
    """Runs a program that takes everything that is free, at once and again and again."""
    process = subprocess.Popen([sys.executable, "-c", GREEDY, str(disk.others)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
