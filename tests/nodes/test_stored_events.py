"""Event files of a shard outlive the node that wrote them: its next owner has them before it writes more.

Proves law: events-stored-first (docs/laws.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.config.settings import Settings
from mailcore.events.write.stored_disk import PIECE_BYTES, StoredDisk
from mailcore.log.disk import Disk
from mailcore.log.store import Store
from mailcore.nodes.kept import EXPORTED_POSITIONS
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.stored_events import make_events, open_events
from mailcore.replication.connection import Connection
from mailcore.replication.snapshot import Snapshot, snapshot
from mailcore.supervisor.pulse import Beats
from tests.nodes.test_owner import home, owned
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD

FILES = {
    "dt=2026-11-21/journal.0.parquet": b"j" * (2 * PIECE_BYTES + 3),
    "dt=2026-11-22/incoming.0.0.parquet": b"i" * 1000,
    "cuts/2026-11-22T000000Z.ids.jsonl": b"",  # of an empty queue
    "cuts/2026-11-22T000000Z.json": b"{}\n",
    EXPORTED_POSITIONS: b'{"lanes":{}}\n',
}


def write(settings: Settings, disk: Disk, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = settings.events_directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.write_whole(str(path), content)


def disk_of(settings: Settings, open_store: Callable[[], Store]) -> StoredDisk:
    return StoredDisk(Beats(), str(settings.events_directory), open_store)


def local(settings: Settings) -> dict[str, bytes]:
    found = (path for path in settings.events_directory.rglob("*") if path.is_file())
    return {str(path.relative_to(settings.events_directory)): path.read_bytes() for path in found}


@pytest.fixture
def first(tmp_path: Path, cluster: Cluster) -> Settings:
    settings = home(tmp_path, cluster)
    owned(settings)
    write(settings, disk_of(settings, open_events(settings)), FILES)
    assert local(settings) == FILES
    return settings


def taken_over(tmp_path: Path, cluster: Cluster) -> Settings:
    settings = home(tmp_path, cluster, "b")
    owned(settings)
    return settings


def test_the_next_owner_has_all_of_them(tmp_path: Path, cluster: Cluster, first: Settings) -> None:
    second = taken_over(tmp_path, cluster)
    open_store = open_events(second)
    assert local(second) == FILES
    more = {"dt=2026-11-22/journal.9.parquet": b"more", EXPORTED_POSITIONS: b'{"cut_at":1.0}\n'}
    write(second, disk_of(second, open_store), more)
    (second.events_directory / "dt=2026-11-21/journal.0.parquet").unlink()
    (second.events_directory / "dt=2026-11-22/journal.9.parquet").write_bytes(b"mo")  # as a fetch that was cut short
    open_events(second)
    assert local(second) == FILES | more


def test_what_the_store_does_not_have_is_put_aside_and_said(tmp_path: Path, cluster: Cluster, first: Settings) -> None:
    second = taken_over(tmp_path, cluster)
    foreign = {"dt=2026-11-20/journal.0.parquet": b"of before", "cuts/2026-11-20T000000Z.json": b"{}"}
    write(second, Disk(), foreign)
    open_events(second)
    found = local(second)
    aside = {name.partition("/")[2]: found.pop(name) for name in list(found) if name.startswith("_aside-")}
    assert (found, aside) == (FILES, foreign)
    log = (second.log_directory / "mail.log").read_text()
    assert "2 event files here, which the database does not have, moved to _aside-" in log


def test_a_part_that_a_killed_exporter_left_is_deleted(cluster: Cluster, first: Settings) -> None:
    store = open_events(first)()
    changes = store.changes()
    changes.blob("events/dt=2026-11-22/.journal.5.parquet", 0, [b"a part"])
    store.commit(changes, {})
    open_events(first)
    assert not [name for name in _names(first) if "/." in name]
    assert local(first) == FILES


def test_files_are_fetched_in_several_transactions_the_newest_days_first(
    tmp_path: Path, cluster: Cluster, first: Settings
) -> None:
    second = taken_over(tmp_path, cluster)
    directory = str(second.events_directory)
    seen: list[list[str]] = []
    while True:
        is_whole = _with_snapshot(second, lambda shown: make_events(shown, Disk(), directory, bytes_max=1))
        seen.append(sorted(local(second)))
        if is_whole:
            break
    assert seen[0] == [EXPORTED_POSITIONS, "dt=2026-11-22/incoming.0.0.parquet"]
    assert seen[-1] == sorted(FILES)
    assert len(seen) == 3


def test_an_owner_that_lost_the_shard_stores_no_more(tmp_path: Path, cluster: Cluster, first: Settings) -> None:
    open_store = open_events(first)
    taken_over(tmp_path, cluster)
    with pytest.raises(SystemExit) as ended:
        _ending(open_store)
    assert ended.value.code == 79


def _ending(open_store: Callable[[], Store]) -> None:
    """In a child, because it ends the process."""
    pid = os.fork()
    if not pid:
        open_store()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    raise SystemExit(os.waitstatus_to_exitcode(status))


def _with_snapshot(settings: Settings, work: Callable[[Snapshot], bool]) -> bool:
    connection = Connection.open(parameters_of(settings))
    try:
        with snapshot(connection, SHARD) as shown:
            assert shown is not None
            return work(shown)
    finally:
        connection.close()


def _names(settings: Settings) -> list[str]:
    names: list[str] = []

    def note(shown: Snapshot) -> bool:
        names.extend(file.name for file in shown.files())
        return True

    _with_snapshot(settings, note)
    return names
