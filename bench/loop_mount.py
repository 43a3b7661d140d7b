"""Mounts a new file system from a file, so that the bytes that its device writes are ours alone. Root only."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["device_of", "loop_mount", "written_bytes"]

SECTOR_BYTES = 512
WRITTEN = 6  # the field of /sys/.../stat with sectors written (Documentation/block/stat.rst of Linux)
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@contextmanager
def loop_mount(kind: str, below: Path, size_bytes: int) -> Iterator[Path]:
    """Mounts an empty file system of a kind that has a mkfs. Raises OSError or CalledProcessError where that is impossible."""
    with tempfile.TemporaryDirectory(prefix="bench-loop-", dir=below) as name:
        image, point = Path(name) / "image", Path(name) / "mounted"
        with image.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        environment = {**os.environ, "PATH": PATH}
        subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True, env=environment)
        point.mkdir()
        subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True, capture_output=True)
        try:
            yield point
        finally:
            subprocess.run(["umount", "-l", str(point)], check=True)  # lazily: an error may have left a file open


def device_of(path: Path) -> Path:
    """Returns the directory in /sys of the block device that a path lies on."""
    number = os.stat(path).st_dev
    return Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")


def written_bytes(path: Path) -> int:
    """Returns the bytes that the device of a path has written since boot, those of other programs included; 0 if unknown."""
    try:
        return int((device_of(path) / "stat").read_text().split()[WRITTEN]) * SECTOR_BYTES
    except OSError:
        return 0
