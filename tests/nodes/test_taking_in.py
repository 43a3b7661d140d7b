"""The queue on a disk becomes a shard, in one step: killed anywhere, the mail is the disk's or the shard's, and never both's.

Proves law: disk-or-shard (docs/laws.md).
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.log.lane import LaneWriter
from mailcore.nodes.owned import read_owned
from mailcore.nodes.parameters import parameters_of, shard_of
from mailcore.nodes.taking_in import CannotTakeIn, Source, Taken, abandon, take_in
from mailcore.queue.queue_id import QueueIds
from mailcore.queue.records import append_envelope
from mailcore.queue.restored import read_restored
from mailcore.queue.shard_copy import (
    ShardCopy,
    forget_taking_in,
    read_copy,
    read_taking_in,
    refuse_copy,
    write_copy,
)
from mailcore.queue.versions import NotOurs
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced, Lost
from mailcore.replication.guarantees import open_checked
from mailcore.replication.shard import read_shard, set_state
from mailcore.replication.writer import StoreWriter
from tests.nodes.test_owner import Ends, Said, Step, appended, at_its_first_pause, home, owned
from tests.queue.test_records import envelope
from tests.replication.cluster import Cluster
from tests.replication.writing import wait_for_waiting

RECORD = 1
Files = dict[str, bytes]


def lane(settings: Settings, name: str, *bodies: bytes) -> None:
    writer = LaneWriter(
        Disk(), str(settings.queue_directory / name), segment_bytes=8192, clock=lambda: 1.0, salt=lambda: 7
    )
    for body in bodies:
        writer.append(RECORD, body)
        batch = writer.take()
        assert batch is not None
        batch.write()
    writer.close()


def queue_on_disk(directory: Path, cluster: Cluster, shard: str = "north", node: str = "a") -> Settings:
    """A home with a bit of everything, and a torn end."""
    settings = home(directory, cluster, node, shard)
    lane(settings, "incoming.0", *(b"mail %d " % each * 300 for each in range(8)))
    lane(settings, "incoming.1021", b"of a program")
    lane(settings, "retry.60", b"waits")
    lane(settings, "journal", b"was tried")
    (settings.queue_directory / "restart").write_bytes(b"positions")
    (settings.spool_directory / "1f").mkdir()
    (settings.spool_directory / "1f" / "ABC").write_bytes(os.urandom(700_000))
    day = settings.events_directory / "dt=2026-01-02"
    day.mkdir(parents=True)
    (day / "events-1.parquet").write_bytes(b"events")
    (settings.events_directory / "_exported").mkdir()
    (settings.events_directory / "_exported" / "positions.json").write_bytes(b"{}")
    newest = max((settings.queue_directory / "incoming.0").glob("*.seg"))
    with newest.open("ab") as file:
        file.write(b"torn")
    return settings


def files_of(settings: Settings) -> Files:
    found: Files = {}
    for directory in (settings.queue_directory, settings.spool_directory, settings.events_directory):
        for path in sorted(directory.rglob("*")):
            if (
                path.is_file()
                and path.name not in ("lock", "shard", "shard-import", "ids.control")
                and path.suffix != ".idx"
            ):
                found[f"{directory.name}/{path.relative_to(directory)}"] = path.read_bytes()
    return found


def taken_in(settings: Settings, step: Callable[[str], None] = lambda _: None, *, is_held: bool = False) -> Taken:
    connection, findings = open_checked(parameters_of(settings))
    try:
        command = "waypost shard rebuild north" if is_held else "waypost shard import"
        source = Source(settings, shard_of(settings), is_held, command=command)
        return take_in(source, connection, findings.system, step=step)
    finally:
        connection.close()


def given_up(settings: Settings, step: Callable[[str], None] = lambda _: None) -> None:
    connection, findings = open_checked(parameters_of(settings))
    try:
        abandon(settings, connection, findings.system, step=step)
    finally:
        connection.close()


class Forked:
    """A command in a process of its own, which is killed in front of one of its steps."""

    def __init__(self, work: Callable[[Callable[[str], None]], object], stop_at: Callable[[int, str], bool]) -> None:
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            count = itertools.count()

            def step(name: str) -> None:
                os.write(writing, f"{name}\n".encode())
                if stop_at(next(count), name):
                    os.kill(os.getpid(), signal.SIGKILL)

            try:
                work(step)
                os._exit(0)
            except BaseException as error:
                os.write(2, repr(error).encode())
                os._exit(1)
        os.close(writing)

    def wait(self) -> list[str] | None:
        """The steps, if it was killed; None if it has ended well."""
        with os.fdopen(self.reading) as file:
            steps = file.read().splitlines()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return steps
        assert os.WEXITSTATUS(status) == 0
        return None


def disk_has_it(settings: Settings) -> bool:
    """A start without a database takes the files for its own."""
    try:
        refuse_copy(Disk(), str(settings.queue_directory))
    except NotOurs:
        return False
    return True


def shard_has_it(settings: Settings) -> bool:
    """Any node may take the shard over and deliver its mail."""
    connection = Connection.open(parameters_of(settings))
    try:
        row = read_shard(connection, shard_of(settings))
    finally:
        connection.close()
    return row is not None and row.state in ("open", "draining")


def stored_in(cluster: Cluster, shard: str) -> list[tuple[str, ...]]:
    tables = ("chunk", "state", "writer")
    return [
        row for each in tables for row in cluster.primary.sql(f"select 1 from waypost.{each} where shard = '{shard}'")
    ]


def test_all_of_a_queue_is_the_shards_and_the_files_are_its_copy(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    before = files_of(settings)
    assert disk_has_it(settings)
    taken = taken_in(settings)
    assert (taken.files, taken.shard.number, taken.was_there) == (len(before), 1, False)
    assert shard_has_it(settings)
    assert not disk_has_it(settings)
    assert read_taking_in(Disk(), str(settings.queue_directory)) is None
    row = owned(settings)  # at once: it is ours
    assert (row.epoch, files_of(settings)) == (1, before)
    other = home(tmp_path, cluster, "b", "north")
    owned(other)
    # Events are fetched by the exporter.
    assert files_of(other) == {name: data for name, data in before.items() if not name.startswith("events/")}
    ends = cluster.primary.sql("select writer from waypost.writer where length(ends) > 1 order by writer")
    assert ends == [("m",), ("p",), ("r0",)]
    (day,) = cluster.primary.sql("select convert_from(bytes, 'UTF8') from waypost.chunk where file like 'events/%'")
    assert day == ("events",)


@pytest.mark.parametrize("then", ["again", "given up"])
def test_killed_in_front_of_each_step_the_mail_is_of_one_alone(cluster: Cluster, tmp_path: Path, then: str) -> None:
    seen: list[str] = []
    for number in range(100):
        shard = f"n{number}"
        (tmp_path / shard).mkdir()
        settings = queue_on_disk(tmp_path / shard, cluster, shard)
        before = files_of(settings)
        steps = Forked(lambda step: taken_in(settings, step), lambda at, _: at == number).wait()  # noqa: B023
        if steps is None:
            break
        seen.append(steps[-1])
        assert not (disk_has_it(settings) and shard_has_it(settings)), steps
        if not shard_has_it(settings) and not disk_has_it(settings):
            with pytest.raises(Said, match="which has not ended"):
                owned(settings)
            if cluster.primary.sql(f"select 1 from waypost.shard where name = '{shard}'"):
                with pytest.raises(Ends):
                    Step(home(tmp_path / shard, cluster, "b", shard), each=at_its_first_pause).run()
        assert files_of(settings) == before, steps
        if then == "given up" and not shard_has_it(settings):
            if not disk_has_it(settings):
                given_up(settings)
            assert disk_has_it(settings)
            assert cluster.primary.sql(f"select 1 from waypost.shard where name = '{shard}'") == []
            assert stored_in(cluster, shard) == []
            continue
        if then == "given up":
            with pytest.raises(CannotTakeIn, match="has all of the mail already"):
                given_up(settings)
        else:
            taken_in(settings)
        assert owned(settings).state == "open"
        assert files_of(settings) == before, steps
        assert not disk_has_it(settings)
    assert {"note", "register", "begin", "free", "commit", "ends", "reserve", "open", "finish"} <= set(seen)


def test_giving_up_is_killed_in_front_of_each_step(cluster: Cluster, tmp_path: Path) -> None:
    for number in range(20):
        shard = f"g{number}"
        (tmp_path / shard).mkdir()
        settings = queue_on_disk(tmp_path / shard, cluster, shard)
        before = files_of(settings)
        assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()  # noqa: B023
        steps = Forked(lambda step: given_up(settings, step), lambda at, _: at == number).wait()  # noqa: B023
        if steps is None:
            break
        assert not shard_has_it(settings)
        assert not disk_has_it(settings)
        given_up(settings)
        assert disk_has_it(settings)
        assert files_of(settings) == before
        taken_in(settings)
        assert owned(settings).state == "open"
    assert number == 5


@pytest.mark.parametrize("then", ["again", "given up"])
def test_an_opening_of_which_nobody_heard_is_found_out(own_cluster: Cluster, tmp_path: Path, then: str) -> None:
    """The command is killed while its last step waits for the standby. It happens later, or never."""
    settings = queue_on_disk(tmp_path, own_cluster)
    before = files_of(settings)
    reading, writing = os.pipe()

    def work(step: Callable[[str], None]) -> None:
        def waits(name: str) -> None:
            step(name)
            if name == "open":
                os.write(writing, b".")
                os.read(go_on, 1)

        taken_in(settings, waits)

    go_on, let = os.pipe()
    forked = Forked(work, lambda *_: False)
    assert os.read(reading, 1) == b"."
    own_cluster.standby.pause_receiver()
    os.write(let, b".")
    wait_for_waiting(own_cluster.primary)
    os.kill(forked.pid, signal.SIGKILL)
    assert forked.wait()
    own_cluster.standby.resume_receiver()
    if then == "given up":
        # The backend that nobody listens to may commit before or behind this.
        try:
            given_up(settings)
        except CannotTakeIn:
            assert shard_has_it(settings)
        else:
            assert disk_has_it(settings)
            assert not shard_has_it(settings)
            taken_in(settings)
    else:
        taken_in(settings)
    assert owned(settings).state == "open"
    assert files_of(settings) == before
    assert not disk_has_it(settings)


def test_the_primary_dies_in_the_middle_and_the_command_goes_on_at_the_standby(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    settings = queue_on_disk(tmp_path, own_cluster)
    before = files_of(settings)
    has_failed = False

    def step(name: str) -> None:
        nonlocal has_failed
        if name == "commit" and not has_failed:
            has_failed = True
            own_cluster.primary.kill()
            own_cluster.standby.promote()
            own_cluster.add_standby(own_cluster.standby)

    with pytest.raises(Lost):  # its writer has found the other server, and its own connection is gone
        taken_in(settings, step)
    assert not shard_has_it(settings)
    assert not disk_has_it(settings)
    taken_in(settings)
    assert owned(settings).state == "open"
    assert files_of(settings) == before


def test_an_opening_of_an_earlier_attempt_comes_too_late(cluster: Cluster, tmp_path: Path) -> None:
    """It is still on its way when the files are put again, and would open a shard that lacks most of them."""
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()
    connection = Connection.open(parameters_of(settings))
    row = read_shard(connection, "north")
    assert row is not None

    def step(name: str) -> None:
        if name == "commit":
            with pytest.raises(Fenced):
                set_state(connection, row, "open")
            assert not shard_has_it(settings)

    taken_in(settings, step)
    connection.close()
    assert owned(settings).state == "open"


def test_a_command_that_was_stopped_deletes_nothing_of_a_shard_that_another_has_opened(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    before = files_of(settings)
    is_first = True

    def step(name: str) -> None:
        nonlocal is_first
        if name == "free" and is_first:
            is_first = False
            taken_in(settings)

    with pytest.raises(Fenced, match="nothing more of it is deleted"):
        taken_in(settings, step)
    assert owned(settings).state == "open"
    assert files_of(settings) == before


def test_giving_up_that_was_stopped_deletes_nothing_of_a_shard_that_another_has_opened(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    before = files_of(settings)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()

    def step(name: str) -> None:
        if name == "free":
            taken_in(settings)

    with pytest.raises(Fenced):
        given_up(settings, step)
    assert owned(settings).state == "open"
    assert files_of(settings) == before


def test_a_commit_of_a_command_that_was_killed_leaves_no_file_in_a_shard_that_is_given_up(
    cluster: Cluster, tmp_path: Path
) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "commit").wait()
    writer = StoreWriter(parameters_of(settings), "north", "i", 1)
    writer.begin()

    def step(name: str) -> None:
        if name == "free":
            with pytest.raises(Fenced):
                writer.commit(appended("queue/late", b"late"), {})

    given_up(settings, step)
    writer.close()
    assert cluster.primary.sql("select 1 from waypost.shard") == []
    assert stored_in(cluster, "north") == []


@pytest.mark.parametrize(
    "change",
    [
        "update waypost.shard set epoch = epoch + 1",
        "insert into waypost.state (shard, file, bytes) values ('north', 'queue/restart', 'late')",
    ],
)
def test_what_was_not_given_up_is_not_forgotten(cluster: Cluster, tmp_path: Path, change: str) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in(settings, step), lambda _, name: name == "open").wait()

    def step(name: str) -> None:
        if name == "give up":
            cluster.primary.sql(change)

    with pytest.raises(CannotTakeIn, match="has changed at this moment"):
        given_up(settings, step)
    assert not disk_has_it(settings)
    given_up(settings)
    assert disk_has_it(settings)


def test_a_database_that_refuses_leaves_the_mail_on_the_disk(own_cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, own_cluster)
    before = files_of(settings)
    own_cluster.primary.sql(
        "create function waypost.full() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;"
        " create trigger full_disk before insert on waypost.chunk for each row when (new.at > 300000)"
        " execute function waypost.full()"
    )
    with pytest.raises(CannotTakeIn, match=r"No space left on device.*still that of this disk"):
        taken_in(settings)
    assert not shard_has_it(settings)
    assert files_of(settings) == before
    own_cluster.primary.sql("drop trigger full_disk on waypost.chunk")
    taken_in(settings)
    assert owned(settings).state == "open"
    assert files_of(settings) == before


def test_what_the_database_returns_must_be_what_the_disk_has(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)

    def step(name: str) -> None:
        if name == "reserve":
            cluster.primary.sql("delete from waypost.chunk where file like 'spool/%' and at = 0")

    with pytest.raises(CannotTakeIn, match="has something else for spool/1f/ABC"):
        taken_in(settings, step)
    assert not shard_has_it(settings)


def test_a_name_that_a_shard_has_is_refused_and_nothing_changes(cluster: Cluster, tmp_path: Path) -> None:
    owned(home(tmp_path, cluster, "b", "north"))
    settings = queue_on_disk(tmp_path, cluster)
    with pytest.raises(CannotTakeIn, match="has a shard north already"):
        taken_in(settings)
    assert disk_has_it(settings)


@pytest.mark.parametrize("is_held", [True, False])
def test_a_shard_that_is_held_has_not_got_the_mail(cluster: Cluster, tmp_path: Path, is_held: bool) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    connection, findings = open_checked(parameters_of(settings))
    connection.close()
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", findings.system))
    assert Forked(lambda step: taken_in(settings, step, is_held=True), lambda _, name: name == "open").wait()
    forget_taking_in(Disk(), str(settings.queue_directory))
    words = r"has a shard north already \(number 1, held\)" if is_held else "is the copy of shard north"
    with pytest.raises(CannotTakeIn, match=words):
        taken_in(settings, is_held=is_held)


def test_an_import_of_another_home_under_the_same_name_is_left_alone(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    first, second = queue_on_disk(tmp_path, cluster), queue_on_disk(tmp_path / "x", cluster, node="b")
    assert Forked(lambda step: taken_in(second, step), lambda _, name: name == "register").wait()
    assert Forked(lambda step: taken_in(first, step), lambda _, name: name == "open").wait()
    with pytest.raises(CannotTakeIn, match="belongs to a/"):
        taken_in(second)
    given_up(second)
    assert disk_has_it(second)
    taken_in(first)
    assert owned(first).state == "open"


def test_the_copy_of_a_lost_database_is_not_passed_over_and_its_mail_is_held(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    before = files_of(settings)
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", 77))
    (settings.place / "confirmed.json").write_bytes(b'{"shards":{"north":{"system":77,"epoch":9,"writers":{"r0":99}}}}')
    with pytest.raises(Said, match="run waypost shard rebuild north"):
        owned(settings)
    assert cluster.primary.sql("select 1 from waypost.shard") == []
    taken = taken_in(settings, is_held=True)
    assert taken.shard.number == 1
    row = owned(settings)
    assert row.state == "open"
    marker = read_restored(Disk(), str(settings.queue_directory))
    assert marker.backup_at
    assert set(marker.lanes) >= {"incoming.0", "incoming.1021", "retry.60"}
    found = files_of(settings)
    found.pop("queue/restored")
    assert found == before
    copy = read_copy(Disk(), str(settings.queue_directory))
    assert copy is not None
    assert copy.system != 77
    told = read_owned(Disk(), settings)
    assert told is not None


def test_the_number_is_not_below_one_in_any_id(cluster: Cluster, tmp_path: Path) -> None:
    """An id with a lower number would lead to another shard, when that number is lent."""
    settings = queue_on_disk(tmp_path, cluster)
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", 77))
    for name, shards in (("incoming.2", (3, 9, 4)), ("retry.300", (5,)), ("retry.900", (0,))):
        writer = LaneWriter(
            Disk(), str(settings.queue_directory / name), segment_bytes=8192, clock=lambda: 1.0, salt=lambda: 7
        )
        for shard in shards:
            queue_id = QueueIds(0, lambda: 1.8e9, shard=shard).next()
            append_envelope(writer, msgspec.structs.replace(envelope(), queue_id=queue_id))
            batch = writer.take()
            assert batch is not None
            batch.write()
        writer.close()
    assert taken_in(settings, is_held=True).shard.number == 9


def test_what_is_damaged_in_a_copy_is_named(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    write_copy(Disk(), str(settings.queue_directory), ShardCopy("north", 77))
    segment = min((settings.queue_directory / "incoming.0").glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[4300] ^= 1
    segment.write_bytes(data)
    taken = taken_in(settings, is_held=True)
    assert any(str(segment) in each for each in taken.lost), taken.lost
    assert segment.read_bytes() == bytes(data)


def taken_in_as_another(settings: Settings, step: Callable[[str], None] = lambda _: None) -> None:
    connection, findings = open_checked(parameters_of(settings))
    try:
        take_in(Source(settings, "lost", is_held=True, has_events=False), connection, findings.system, step=step)
    finally:
        connection.close()


def test_a_shard_of_another_name_drains(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)
    taken_in_as_another(settings)
    assert cluster.primary.sql("select name, state, placed from waypost.shard") == [("lost", "draining", "a")]


@pytest.mark.parametrize(
    ("change", "placed"),
    [("beat = beat + 1", "a"), ("epoch = epoch + 1, owner = 'b/x/y/z'", ""), ("placed = 'b'", "b")],
)
def test_a_shard_that_was_opened_and_not_placed_is_placed_by_the_next_command(
    cluster: Cluster, tmp_path: Path, change: str, placed: str
) -> None:
    """Otherwise no node may take it, where each leaves the shards of others to others."""
    settings = queue_on_disk(tmp_path, cluster)
    assert Forked(lambda step: taken_in_as_another(settings, step), lambda _, name: name == "place").wait()
    assert cluster.primary.sql("select state, placed from waypost.shard") == [("draining", "")]
    cluster.primary.sql(f"update waypost.shard set {change}")
    taken_in_as_another(settings)
    assert cluster.primary.sql("select placed from waypost.shard") == [(placed,)]
    assert read_taking_in(Disk(), str(settings.queue_directory)) is None


def test_a_shard_that_cannot_be_placed_now_is_placed_by_the_next_command(cluster: Cluster, tmp_path: Path) -> None:
    settings = queue_on_disk(tmp_path, cluster)

    def step(name: str) -> None:
        if name == "place":
            cluster.primary.sql("update waypost.shard set epoch = epoch + 1")

    with pytest.raises(CannotTakeIn, match="has changed at this moment"):
        taken_in_as_another(settings, step)
    taken_in_as_another(settings)
    assert cluster.primary.sql("select placed from waypost.shard") == [("a",)]
