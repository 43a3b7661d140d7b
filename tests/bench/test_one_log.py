"""The two kinds of queue of bench.one_log: both deliver or expire all mail, and keep no segment that they need no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.one_log_model import KINDS, Queue


@pytest.mark.parametrize("kind", KINDS)
def test_all_mail_is_delivered_or_expires(kind: str, tmp_path: Path) -> None:
    counted = Queue(kind, tmp_path, 300, 50.0, seed=3).run()
    assert counted.delivered + counted.expired == 300
    assert counted.passes > 300  # some were deferred
    assert counted.synced_for_mail <= counted.syncs


def test_runners_of_one_log_read_what_is_written_once_each(tmp_path: Path) -> None:
    lanes, one = (Queue(kind, tmp_path / kind, 300, 50.0, seed=3).run() for kind in KINDS)
    assert lanes.read_bytes < 1.5 * lanes.appended_bytes
    assert one.read_bytes > 5 * one.appended_bytes  # six runners


def test_what_no_runner_needs_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.one_log_model.SEGMENT_BYTES", 1 << 20)
    for kind in KINDS:
        counted = Queue(kind, tmp_path / kind, 300, 50.0, seed=3).run()
        left = sum(path.stat().st_size for path in (tmp_path / kind).rglob("*.seg"))
        assert left < counted.appended_bytes / 2
