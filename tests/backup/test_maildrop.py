"""Mail that sendmail took and the pickup has not: a backup and a restore neither lose it nor bring it twice."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.backup.maildrop import MaildropCopy
from mailcore.backup.snapshot import LINKS, Snapshot
from mailcore.config.settings import Settings
from mailcore.lab.lab import Lab
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import Draft, Submission
from mailcore.pickup.pickup import open_maildrop
from mailcore.pickup.taking import Taking
from mailcore.queue.from_maildrop import names_of, names_taken
from tests.backup.place import REASON, backed_up, command, destroyed_and_restored
from tests.backup.test_queue_comes_back import everything_held, release_all
from tests.running.running_core import RunningCore, recipients_of, running


def submit(home: Path, recipient: str = "b@example.net") -> str:
    open_maildrop(str(home / "maildrop"))
    draft = Draft(Disk(), str(home / "maildrop"))
    draft.begin(Submission(sender="a@example.org", recipients=(recipient,), submitted_at=time.time()))
    draft.write(b"Subject: x\n\nbody\n")
    draft.submit()
    return draft.name


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    for name in ("queue", "spool"):
        (tmp_path / name).mkdir()
    return Settings(
        home=tmp_path, queue_directory=tmp_path / "queue", spool_directory=tmp_path / "spool",
        run_directory=tmp_path / "run", log_directory=tmp_path / "log",
    )  # fmt: skip


@pytest.fixture
def taking(settings: Settings) -> Iterator[Taking]:
    salts = itertools.count(1)
    made = Taking(
        Disk(), settings, hostname="mx.example.org", clock=time.time, salt=lambda: next(salts), written=lambda _: 0.0
    )
    yield made
    made.close()


def taken_half(taking: Taking) -> None:
    """The message is in the lane and synced; the process is killed before it removes the file."""

    def killed() -> None:
        if taking._to_remove:
            raise OSError("killed")

    taking._remove = killed  # type: ignore[method-assign]
    with pytest.raises(OSError, match="killed"):
        taking.look()


MOMENTS = (
    "never",
    "before",
    "behind the copy",
    "half behind the copy",
    "behind the snapshot",
    "half behind the snapshot",
)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_message_is_in_the_backup_once_whenever_it_is_taken(
    settings: Settings, taking: Taking, tmp_path: Path, moment: str
) -> None:
    name = submit(settings.home)
    (tmp_path / "copies").mkdir()
    copy = MaildropCopy(settings.home / "maildrop", tmp_path / "copies", 1_000_000)
    snapshot = Snapshot(str(settings.queue_directory), str(settings.spool_directory))

    def now(here: str) -> None:
        if moment == here:
            taking.look()
        elif moment == f"half {here}":
            taken_half(taking)

    now("before")
    copy.take()
    now("behind the copy")
    snapshot.take()
    now("behind the snapshot")
    left = copy.left(snapshot)
    links = str(settings.queue_directory / LINKS / "incoming.1021")
    end = snapshot.ends().get("incoming.1021", 0)
    in_queue = names_taken(Disk(), links, 0, end) if os.path.isdir(links) else []
    assert sorted(left + in_queue) == [name]
    if left:
        assert copy.path(name).stat().st_size > 0
    snapshot.drop()


def test_a_file_that_is_no_message_does_not_stop_the_backup(settings: Settings, tmp_path: Path) -> None:
    good = submit(settings.home)
    maildrop = settings.home / "maildrop"
    (maildrop / ("a" * 32)).symlink_to("/etc/shadow")
    os.mkfifo(maildrop / ("b" * 32))
    (maildrop / ("c" * 32)).write_bytes(b"")
    os.truncate(maildrop / ("c" * 32), 1 << 30)  # sparse
    (tmp_path / "copies").mkdir()
    copy = MaildropCopy(maildrop, tmp_path / "copies", 1_000_000)
    copy.take()
    assert os.listdir(tmp_path / "copies") == [good]
    assert len(copy.refused) == 3


async def test_mail_in_the_maildrop_comes_back_held_and_is_delivered_once(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {}) as core:
        core.stop()
        name = submit(core.home, "old@example.org")
        path = await backed_up(core, "--queue")
        await destroyed_and_restored(core, path)
        assert names_of(os.listdir(core.home / "maildrop")) == [name]
        await core.start()
        await everything_held(core, 1)
        (item,) = await core.listed()
        assert item["reason"].startswith(REASON)
        submit(core.home, "new@example.org")
        await lab.wait_for(1)
        assert recipients_of(lab.messages) == ["new@example.org"]
        assert await release_all(core) == 1
        await core.until_empty()
        assert sorted(recipients_of(lab.messages)) == ["new@example.org", "old@example.org"]


async def test_mail_of_this_host_stays_in_its_maildrop(tmp_path: Path) -> None:
    """It is no mail of the backup, and is delivered as if nothing had happened; without the queue nothing else is there."""
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, {}) as core:
        core.stop()
        submit(core.home, "old@example.org")
        path = await backed_up(core, "--queue")
        await destroyed_and_restored(core, path, "--without-queue")
        submit(core.home, "here@example.org")
        await restore_again(core, path)
        await core.start()
        await lab.wait_for(1)
        await everything_held(core, 1)
        assert recipients_of(lab.messages) == ["here@example.org"]


async def restore_again(core: RunningCore, path: Path) -> None:
    done = await command(core, "restore", str(path), "--move-aside")
    assert "queue" in done["parts"]
