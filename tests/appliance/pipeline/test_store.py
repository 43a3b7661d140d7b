"""What is published is whole, whenever the writer is killed, and nothing is left of what was not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.pipeline.store import Busy, Store

# Publishes the versions 1, 2, 3, …, each of two files; ends itself at a point it is told.
WRITER = """
import os, signal, sys
from pathlib import Path
import appliance.pipeline.store as module
store, left = module.Store(Path(sys.argv[1])), int(sys.argv[2])
EVENTS = ("open", "os.mkdir", "os.symlink", "os.rename", "os.remove", "shutil.rmtree")
def stop(event, arguments):
    global left
    if event in EVENTS and str(sys.argv[1]) in str(arguments):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(stop)
with store.locked():
    for version in range(1, 4):
        aside = store.begin("gold/day=1")
        for name in ("a", "b"):
            (aside / name).write_text(str(version))
        store.publish(aside, "gold/day=1")
"""


def content(store: Store) -> set[str]:
    version = store.current("gold/day=1")
    return set() if version is None else {(version / name).read_text() for name in ("a", "b")}


def test_killed_anywhere_it_shows_one_version_whole_and_the_next_run_sweeps(tmp_path: Path) -> None:
    seen = set()
    for point in range(1, 100):
        root = tmp_path / str(point)
        ended = subprocess.run([sys.executable, "-c", WRITER, str(root), str(point)], check=False)
        store = Store(root)
        found = content(store) if root.exists() else set()
        assert len(found) <= 1, f"of two versions, killed at point {point}"
        seen |= found
        with store.locked():
            assert content(store) == found
            assert len(list(store.versions.iterdir())) == len(found)
        if ended.returncode == 0:
            assert found == {"3"}
            break
    assert point > 20
    assert seen == {"1", "2", "3"}


def test_who_reads_reads_on_when_another_version_is_published(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.locked():
        aside = store.begin("gold/day=1")
        (aside / "a").write_text("old")
        store.publish(aside, "gold/day=1")
        reading = store.current("gold/day=1")
        assert reading is not None
        aside = store.begin("gold/day=1")
        store.publish(aside, "gold/day=1")
        assert (reading / "a").read_text() == "old"
    with store.locked():
        assert not reading.exists()


def test_what_a_java_that_was_killed_spilled_is_swept_by_the_next_run_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.locked():
        for name in ("blockmgr-1/0c", "spark-2/pyspark-3", "java/bin"):
            (store.scratch / name).mkdir(parents=True)
            (store.scratch / name / "rows").write_text("spilled")
        with pytest.raises(Busy), Store(tmp_path).locked():
            pass
        assert len(list(store.scratch.iterdir())) == 3, "they are of who holds the lock"
    with store.locked():
        assert [path.name for path in store.scratch.iterdir()] == ["java"]


def test_two_runs_never_write_at_once(tmp_path: Path) -> None:
    with Store(tmp_path).locked(), pytest.raises(Busy), Store(tmp_path).locked():
        pass
    with Store(tmp_path).locked():
        pass
