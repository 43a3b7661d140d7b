"""The owner step: before a process of a shard starts, the shard is ours and its files are what the database says.

Proves law: own-before-start, law: foreign-queue-stays, law: never-back-in-time, law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from mailcore.config.load import load_text
from mailcore.config.settings import Settings
from mailcore.log.disk import Disk
from mailcore.maillog import MailLog
from mailcore.nodes.owned import read_owned
from mailcore.nodes.owner import Gone, OwnerStep, _Saying
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.writing import note_once
from mailcore.queue.identity import new_identity, write_identity
from mailcore.queue.restored import read_restored
from mailcore.queue.shard_copy import refuse_copy
from mailcore.queue.versions import NotOurs
from mailcore.replication.batch import Batch
from mailcore.replication.connection import Connection
from mailcore.replication.faults import Fenced
from mailcore.replication.shard import ShardRow, confirm_owner, renew
from mailcore.replication.writer import StoreWriter
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster
from tests.replication.writing import SHARD

SEGMENT = "00000000000000000000.seg"


class Said(Exception):
    """Ends a step that would wait, with its reason."""


def home(directory: Path, cluster: Cluster, node: str = "a", shard: str = SHARD) -> Settings:
    text = f'[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "{node}"\nshard = "{shard}"\n'
    settings = load_text(directory / node / "waypost.toml", text)
    for each in (settings.home, settings.run_directory, settings.queue_directory, settings.spool_directory):
        each.mkdir(parents=True, exist_ok=True)
    if not (settings.home / "identity").exists():
        write_identity(Disk(), str(settings.home), new_identity(str(settings.home), 1.0, lambda: node * 32))
    return settings


class Step(OwnerStep):
    """One whose clock is moved by its pauses. It ends with Said when it waits for anything but a silent beat."""

    def __init__(self, settings: Settings, lost: str = "", each: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self.reads = 0
        self.said: list[str] = []
        self._each = each
        super().__init__(settings, lost=lost, say=self._says, sleep=self._pauses, clock=lambda: self.now)

    def _says(self, words: str) -> None:
        self.said.append(words)

    def _pauses(self, seconds: float) -> None:
        if seconds > 0.5:
            raise Said(self.said[-1])
        self.reads += 1
        self.now += seconds
        self._each()


def owned(settings: Settings, lost: str = "") -> ShardRow:
    return Step(settings, lost).run()


def commit(settings: Settings, row: ShardRow, name: str, batch: Batch, ends: dict[str, tuple[int, int]]) -> StoreWriter:
    writer = StoreWriter(parameters_of(settings), SHARD, name, row.epoch)
    writer.begin()
    writer.commit(batch, ends)
    return writer


def appended(file: str, data: bytes) -> Batch:
    batch = Batch()
    batch.append(file, 0, [data])
    return batch


def test_the_first_owner_registers_and_each_further_start_finds_it_still_ours(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster)
    first, again = owned(settings), owned(settings)
    assert (first.number, first.epoch, again.epoch, again.owner) == (1, 1, 1, first.owner)
    assert again.beat > first.beat
    told = read_owned(Disk(), settings)
    assert told is not None
    assert (told.name, told.number, told.epoch, told.owner) == (SHARD, 1, 1, first.owner)


def test_the_tables_are_made_in_a_database_without_them(own_cluster: Cluster, tmp_path: Path) -> None:
    own_cluster.primary.sql("drop schema waypost cascade")
    assert owned(home(tmp_path, own_cluster)).number == 1


def test_a_spare_takes_over_only_when_the_beat_has_stood_still(cluster: Cluster, tmp_path: Path) -> None:
    first = owned(home(tmp_path, cluster, "a"))
    other = Connection.open(parameters_of(home(tmp_path, cluster, "a")))
    confirmed = confirm_owner(other, SHARD, first.epoch, first.owner)
    assert confirmed is not None
    left, beat = 40, confirmed.beat

    def renewed() -> None:
        nonlocal left, beat
        left -= 1
        if left > 0 and left % 10 == 0:  # each five seconds of its clock
            beat = renew(other, first, beat, beat + 1).beat

    spare = Step(home(tmp_path, cluster, "b"), each=renewed)
    taken = spare.run()
    other.close()
    assert (taken.epoch, taken.owner.split("/")[0]) == (2, "b")
    assert spare.now >= 15 + 9, "nine seconds after the last beat that it has seen"
    assert f"shard {SHARD} belongs to a; this node is its spare" in spare.said


def test_a_takeover_ends_the_writers_and_its_files_are_what_they_committed(cluster: Cluster, tmp_path: Path) -> None:
    a, b = home(tmp_path, cluster, "a"), home(tmp_path, cluster, "b")
    row = owned(a)
    writer = commit(a, row, "r0", appended(f"queue/incoming.0/{SEGMENT}", b"mail"), {"incoming.0": (0, 4)})
    commit(a, row, "u0", appended("spool/1f/ABC", b"data"), {}).close()
    taken = owned(b)
    assert (b.queue_directory / "incoming.0" / SEGMENT).read_bytes() == b"mail"
    assert (b.spool_directory / "1f" / "ABC").read_bytes() == b"data"
    with pytest.raises(Fenced):
        writer.commit(appended(f"queue/incoming.0/{SEGMENT}x", b"later"), {})
    writer.close()
    # The former owner comes back, with files that the database lacks and others of its own.
    later = commit(b, taken, "r0", appended("queue/incoming.0/00000000000000000100.seg", b"more"), {})
    later.close()
    lane = a.queue_directory / "incoming.0"
    lane.mkdir()
    for name in (SEGMENT, "00000000000000000050.seg", "lock", "ids"):
        (lane / name).write_bytes(b"local")
    assert owned(a).epoch == 3
    found = {path.name: path.read_bytes() for path in lane.iterdir()}
    assert found == {SEGMENT: b"mail", "00000000000000000100.seg": b"more", "lock": b"local", "ids": b"local"}


def test_a_home_that_has_lost_the_shard_is_another_owner(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster)
    first = owned(settings)
    again = Step(settings, "lost")
    row = again.run()
    assert (row.epoch, again.now >= 9) == (2, True)
    assert row.owner != first.owner


@pytest.mark.parametrize("file", [f"queue/journal/{SEGMENT}", "queue/restart", "spool/1f/ABC"])
def test_a_queue_of_another_is_left_and_nothing_is_registered(cluster: Cluster, tmp_path: Path, file: str) -> None:
    settings = home(tmp_path, cluster)
    path = settings.home / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"mail of before")
    with pytest.raises(Said, match="has a queue that is not kept by a database"):
        owned(settings)
    assert path.read_bytes() == b"mail of before"
    assert cluster.primary.sql("select * from waypost.shard") == []


def test_the_copy_of_another_shard_is_left(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster)
    row = owned(settings)
    commit(settings, row, "r0", appended(f"queue/incoming.0/{SEGMENT}", b"mail"), {}).close()
    owned(settings)
    other = dataclasses.replace(settings, nodes=dataclasses.replace(settings.nodes, shard="south"))
    with pytest.raises(Said, match=f"is a copy of shard {SHARD}, and not one of shard south"):
        owned(other)
    assert (settings.queue_directory / "incoming.0" / SEGMENT).read_bytes() == b"mail"


def test_a_copy_of_a_shard_is_not_used_without_its_database(cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, cluster)
    refuse_copy(Disk(), str(settings.queue_directory))
    owned(settings)
    with pytest.raises(NotOurs, match="is the copy of a shard that a database keeps"):
        refuse_copy(Disk(), str(settings.queue_directory))


@pytest.mark.parametrize("how", ["noted", "a writer saw it"])
def test_a_database_that_went_back_in_time_has_its_mail_held_and_loses_no_file(
    own_cluster: Cluster, tmp_path: Path, how: str
) -> None:
    settings = home(tmp_path, own_cluster)
    row = owned(settings)
    commit(settings, row, "r0", appended(f"queue/incoming.0/{SEGMENT}", b"mail"), {"incoming.0": (0, 4)}).close()
    owned(settings)
    writer = commit(settings, row, "r0", appended("queue/incoming.0/00000000000000000100.seg", b"more"), {})
    writer.close()
    (settings.queue_directory / "incoming.0" / "00000000000000000100.seg").write_bytes(b"more")
    told = read_owned(Disk(), settings)
    assert told is not None
    if how == "noted":
        note_once(Disk(), settings, parameters_of(settings), told)
    own_cluster.primary.sql("delete from waypost.chunk where file like '%100.seg'")
    own_cluster.primary.sql("update waypost.writer set n = 1 where writer = 'r0'")
    step = Step(settings, "" if how == "noted" else "back")
    step.run()
    assert any("is held" in words for words in step.said), step.said
    marker = read_restored(Disk(), str(settings.queue_directory))
    assert marker.backup_at
    assert own_cluster.primary.sql("select file from waypost.state") == [("queue/restored",)]
    (aside,) = settings.queue_directory.glob("aside-*")
    assert (aside / "incoming.0" / "00000000000000000100.seg").read_bytes() == b"more"
    assert not (settings.queue_directory / "incoming.0" / "00000000000000000100.seg").exists()
    again = Step(settings)
    again.run()
    assert not any("is held" in words for words in again.said), "once"


def test_a_database_that_must_not_be_used_is_waited_for_with_its_remedy(own_cluster: Cluster, tmp_path: Path) -> None:
    settings = home(tmp_path, own_cluster)
    own_cluster.primary.settle("synchronous_standby_names = ''")
    with pytest.raises(Said, match="set synchronous_standby_names to the name of the standby"):
        owned(settings)
    own_cluster.primary.settle("synchronous_standby_names = '*'")
    own_cluster.wait_for_standby(own_cluster.primary)
    assert owned(settings).number == 1
    own_cluster.kill()
    with pytest.raises(Said, match="the database cannot be used now"):
        owned(settings)


class Ends(Exception):
    """Ends a step at its first pause."""


def at_its_first_pause() -> None:
    raise Ends


def is_handed_over(cluster: Cluster) -> bool:
    return cluster.primary.sql("select released = epoch from waypost.shard") == [("t",)]


def test_an_owner_that_another_node_waits_for_hands_over_and_that_node_takes_it_at_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    a, b = home(tmp_path, cluster, "a"), home(tmp_path, cluster, "b")
    row = owned(a)
    commit(a, row, "r0", appended(f"queue/incoming.0/{SEGMENT}", b"mail"), {"incoming.0": (0, 4)}).close()
    cluster.primary.sql("update waypost.shard set wanted = 'b'")
    with pytest.raises(Ends):
        Step(a, each=at_its_first_pause).run()
    assert is_handed_over(cluster)
    again = Step(a, each=at_its_first_pause)
    with pytest.raises(Ends):
        again.run()
    assert is_handed_over(cluster), "an owner that has handed over is a spare, also after a restart"
    target = Step(b)
    taken = target.run()
    assert (taken.epoch, taken.node, taken.wanted, taken.released, target.now) == (2, "b", "", 0, 0.0)
    assert (b.queue_directory / "incoming.0" / SEGMENT).read_bytes() == b"mail"


def test_a_node_that_waits_for_a_shard_does_not_take_it_before_it_is_handed_over(
    cluster: Cluster, tmp_path: Path
) -> None:
    owned(home(tmp_path, cluster, "a"))
    cluster.primary.sql("update waypost.shard set wanted = 'b'")
    target = Step(home(tmp_path, cluster, "b"), each=at_its_first_pause)
    with pytest.raises(Ends):
        target.run()
    assert cluster.primary.sql("select epoch from waypost.shard") == [("1",)]


def test_a_shard_that_was_handed_over_and_not_taken_is_anybodys_after_the_wait(
    cluster: Cluster, tmp_path: Path
) -> None:
    a = home(tmp_path, cluster, "a")
    owned(a)
    cluster.primary.sql("update waypost.shard set wanted = 'b'")
    step = Step(a)
    row = step.run()
    assert (row.epoch, row.node, row.wanted, row.released, step.now >= 9) == (2, "a", "", 0, True)


@pytest.mark.parametrize("state", ["draining", "drained"])
def test_a_node_that_drains_takes_back_after_the_wait_what_it_has_handed_over_and_nobody_took(
    cluster: Cluster, tmp_path: Path, state: str
) -> None:
    a = home(tmp_path, cluster, "a")
    owned(a)
    cluster.primary.sql("update waypost.shard set wanted = 'b'")
    cluster.primary.sql(f"insert into waypost.node (name, state) values ('a', '{state}')")

    def ends() -> None:
        if step.now > 20:
            raise Ends

    step = Step(a, each=ends)
    if state == "drained":  # all has left it: what is there by mistake is a person's
        with pytest.raises(Ends):
            step.run()
        assert is_handed_over(cluster)
        assert not step.is_in_order, "no node has the shard"
        return
    row = step.run()
    assert (row.epoch, row.node, row.wanted, row.released, step.now >= 9) == (2, "a", "", 0, True)
    assert "this node is draining, and takes no shard; waypost node resume ends that" in step.said


def test_a_node_that_drains_takes_no_shard_that_another_has_had(cluster: Cluster, tmp_path: Path) -> None:
    cluster.primary.sql(
        "insert into waypost.node (name, state) values ('a', 'draining');"
        f" insert into waypost.shard (name, number, epoch, owner) values ('{SHARD}', 1, 1, 'dead/x/y/z')"
    )

    def ends() -> None:
        if step.now > 20:
            raise Ends

    for change in ("released = 0", "wanted = 'b', released = 1"):
        cluster.primary.sql(f"update waypost.shard set {change}")
        step = Step(home(tmp_path, cluster, "a"), each=ends)
        with pytest.raises(Ends):
            step.run()
    assert cluster.primary.sql("select epoch from waypost.shard") == [("1",)]


@pytest.mark.parametrize(("placed", "asks"), [("", True), ("a", True), ("b", False)])
def test_a_home_asks_for_its_shard_that_was_adopted_unless_a_person_has_placed_it_elsewhere(
    cluster: Cluster, tmp_path: Path, placed: str, asks: bool
) -> None:
    cluster.primary.sql(
        "insert into waypost.shard (name, number, epoch, owner, state, placed)"
        f" values ('{SHARD}', 1, 4, 'b/x/y/z', 'draining', '{placed}')"
    )
    with pytest.raises(Ends):
        Step(home(tmp_path, cluster, "a"), each=at_its_first_pause).run()
    assert cluster.primary.sql("select wanted from waypost.shard") == [("a" if asks else "",)]


@pytest.mark.parametrize("state", ["open", "drained"])
def test_a_node_is_in_order_while_another_one_lives_and_owns_its_shard_and_not_else(
    cluster: Cluster, tmp_path: Path, state: str
) -> None:
    cluster.primary.sql(f"insert into waypost.node (name, state) values ('a', '{state}')")
    shard = "insert into waypost.shard (name, number, epoch, owner, placed, state, released, wanted) values"
    for number, owner, shard_state, released, is_in_order in (
        (1, "b/x/y/z", "open", 0, True),
        (2, "b/x/y/z", "closed", 0, False),
        (3, "b/x/y/z", "held", 0, False),
        (4, "b/x/y/z", "open", 1, False),
    ):
        if (state, shard_state) == ("drained", "held"):
            continue
        cluster.primary.sql(f"{shard} ('s{number}', {number}, 1, '{owner}', 'b', '{shard_state}', {released}, 'c')")
        step = Step(home(tmp_path / str(number), cluster, "a", f"s{number}"), each=at_its_first_pause)
        with pytest.raises(Ends):
            step.run()
        assert step.is_in_order is is_in_order, step.said


def test_the_kind_of_a_reason_is_written_anew_when_it_alone_changes(tmp_path: Path) -> None:
    told: list[str] = []
    kinds = iter((True, True, False, False, True))
    saying = _Saying(MailLog(tmp_path), told.append, lambda: next(kinds))
    for _ in range(5):
        saying("this node is drained")
    assert len(told) == 3


def test_a_node_that_is_drained_registers_and_takes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cluster.primary.sql("insert into waypost.node (name, state) values ('a', 'drained')")
    settings = home(tmp_path, cluster, "a")
    step = Step(settings, each=at_its_first_pause)
    with pytest.raises(Ends):
        step.run()
    assert "this node is drained, and takes no shard; waypost node resume ends that" in step.said
    assert cluster.primary.sql("select * from waypost.shard") == []


def test_the_owner_step_of_an_adopted_shard_ends_when_another_node_has_it(cluster: Cluster, tmp_path: Path) -> None:
    settings = dataclasses.replace(home(tmp_path, cluster, "a", "own"), shard=1)
    adopting = dataclasses.replace(settings, nodes=dataclasses.replace(settings.nodes, shard=SHARD))
    cluster.primary.sql(f"insert into waypost.shard (name, number, epoch, owner) values ('{SHARD}', 1, 4, 'b/x/y/z')")
    with pytest.raises(Gone):
        Step(adopting).run()
