"""The disk: full, without inodes, read-only, in memory (a tmpfs of ours); and its syncs, as the kernel sees them."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.doctor import disk, sync
from mailcore.doctor.finding import Finding, State
from mailcore.log.disk import Disk
from mailcore.queue.ballast import NAME
from mailcore.supervisor.room import ballast_of
from tests.doctor.sample_host import found, sample_host

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
HUGE = "[queue]\nreserve_bytes = 1_000_000_000_000\n"  # bigger than this disk


@contextlib.contextmanager
def mounted(directory: Path, options: str) -> Iterator[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@as_root
def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "home" / "queue", "size=1m,mode=750") as queue:
        host = sample_host(tmp_path, "[queue]\nreserve_bytes = 100_000\n")

        def room() -> Finding:
            """Of the queue, which is a file system of its own."""
            (it,) = [each for each in disk.look(host) if each.what == "queue" and "free_bytes" in each.figures]
            return it

        assert room().state is State.GOOD
        (queue / "full").write_bytes(bytes(900_000))
        assert room().state is State.WARN
        with contextlib.suppress(OSError):
            (queue / "more").write_bytes(bytes(900_000))
        assert room().state is State.BAD
        assert "new mail is refused with 452" in room().found
        assert room().figures["free_bytes"] < 100_000


@as_root
def test_no_inodes_are_left(tmp_path: Path) -> None:
    with mounted(tmp_path / "home" / "spool", "size=1m,nr_inodes=40") as spool:
        host = sample_host(tmp_path)
        with contextlib.suppress(OSError):
            for number in range(50):
                (spool / str(number)).touch()
        (finding,) = [each for each in disk.look(host) if each.what == "spool" and "inodes_free" in each.figures]
    assert finding.state is State.BAD
    assert finding.figures["inodes_free"] == 0


@as_root
def test_mail_in_memory_is_lost_when_the_power_goes(tmp_path: Path) -> None:
    with mounted(tmp_path / "home" / "queue", "size=1m"):
        kinds = [each for each in disk.look(sample_host(tmp_path)) if "kept in memory;" in each.found]
    assert [(each.what, each.state) for each in kinds] == [("queue", State.BAD)]


@as_root
def test_a_disk_mounted_read_only(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    with mounted(tmp_path / "home" / "log", "size=1m,ro"):
        findings = [each for each in disk.look(host) if "read-only" in each.found]
    assert [(each.what, each.state) for each in findings] == [("log", State.BAD)]


def test_less_than_the_reserve(tmp_path: Path) -> None:
    finding = found(disk.look(sample_host(tmp_path, HUGE)), "home and all directories")
    assert finding.state is State.BAD


def test_a_home_that_is_not_there_yet(tmp_path: Path) -> None:
    host = sample_host(tmp_path, "[queue]\nreserve_bytes = 0\n")
    shutil.rmtree(host.settings.home)
    findings = list(disk.look(host))
    assert findings
    assert found(sync.look(host), "sync latency").state is State.NOT_KNOWN
    assert not host.settings.home.exists(), "looking makes nothing"


@as_root
def test_a_mount_point_with_a_space_in_its_name(tmp_path: Path) -> None:
    with mounted(tmp_path / "a b", "size=1m") as directory:
        assert disk.mount_of(directory / "below").point == str(directory)


# -- syncs


def test_it_really_syncs_and_leaves_nothing(tmp_path: Path) -> None:
    """As strace sees it: an append and a sync, each time, and no name in the directory."""
    trace = tmp_path / "trace"
    queue = tmp_path / "queue"
    queue.mkdir()
    code = (
        "import sys; from pathlib import Path; from mailcore.doctor.sync import measure; "
        "print(len(measure(Path(sys.argv[1]))))"
    )
    command = [
        "strace",
        "-f",
        "-e",
        "trace=fdatasync,pwrite64",
        "-o",
        str(trace),
        sys.executable,
        "-c",
        code,
        str(queue),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    calls = trace.read_text()
    assert done.stdout == "50\n"
    assert calls.count("fdatasync(") == 50
    assert calls.count("pwrite64(") == 50
    assert list(queue.iterdir()) == []


def test_a_file_with_a_name_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "NAMELESS_UNSYNCED", (disk.mount_of(tmp_path).kind,))
    assert len(sync.measure(tmp_path, 3)) == 3
    assert list(tmp_path.iterdir()) == []


def test_it_is_bounded_in_time(tmp_path: Path) -> None:
    assert sync.measure(tmp_path, limit_s=0.0) == []


@pytest.mark.parametrize(
    ("slow_s", "bad_s", "state"), [(9.0, 9.0, State.GOOD), (0.0, 9.0, State.WARN), (0.0, 0.0, State.BAD)]
)
def test_slow_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_s: float, bad_s: float, state: State) -> None:
    monkeypatch.setattr(sync, "SLOW_S", slow_s)
    monkeypatch.setattr(sync, "BAD_S", bad_s)
    monkeypatch.setattr(sync, "STALL_S", 100.0)
    (finding,) = sync.look(sample_host(tmp_path))
    assert finding.state is state
    assert finding.figures["syncs"] <= 50
    assert finding.figures["median_ms"] <= finding.figures["worst_ms"]


def test_not_one_sync_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync, "measure", lambda directory: [])
    (finding,) = sync.look(sample_host(tmp_path))
    assert finding.state is State.BAD


def test_a_ballast_that_is_in_use(tmp_path: Path) -> None:
    host = sample_host(tmp_path, "[queue]\nballast_bytes = 2_000_000\nballast_inodes = 64\n")
    assert not [each for each in disk.look(host) if each.what == "ballast"], "it has never run"
    host.settings.queue_directory.mkdir(parents=True, exist_ok=True)
    ballast_of(host.settings, Disk()).keep()
    whole = found(disk.look(host), "ballast")
    assert (whole.state, whole.figures) == (State.GOOD, {"ballast_bytes": 2_000_000, "ballast_inodes": 64})
    (host.settings.queue_directory / NAME / "inode.00063").unlink()
    assert found(disk.look(host), "ballast").state is State.WARN
