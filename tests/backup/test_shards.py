"""A node with several shards in one backup: all mail of all shards comes back held, and is delivered once when released."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from mailcore.queue.identity import NAME
from mailcore.queue.queue_id import shard_of
from mailcore.queue.versions import RESTORING
from tests.backup.place import backed_up, command, destroyed_and_restored, restored
from tests.backup.test_queue_comes_back import BIG, LONG, NEVER, everything_held, release_all
from tests.running.running_core import Sections, recipients_of
from tests.running.running_shards import RunningShards, running_shards

SECTIONS: Sections = {**LONG, "export": {"enabled": True, "interval_s": 0.2}}


async def filled(core: RunningShards) -> dict[str, int]:
    """Mail in several lanes of both shards: the queue ids and their shards, of messages that come back."""
    found = {}
    for shard in (0, 1):
        queue_id = await core.send_to(shard, f"deferred{shard}@example.org")
        await core.until_in(queue_id, "retry.600")
        held = await core.send_to(shard, f"held{shard}@example.org")
        await core.until_in(held, "retry.600")
        await core.order("hold", held, why="wait")
    big = await core.send("big@example.org", data=BIG)
    await core.until_in(big, "retry.600")
    gone = await core.send_to(1, "gone@example.org")
    await core.until_in(gone, "retry.600")
    await core.order("delete", gone)
    for item in await core.listed():
        if item["lane"] != "deleted":
            found[item["queue_id"]] = shard_of(item["queue_id"])
    return found


async def test_all_shards_come_back_held_and_all_mail_is_delivered_once(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab, SECTIONS) as core:
        ids = await filled(core)
        assert set(ids.values()) == {0, 1}
        archive = await backed_up(core, "--queue", "--reports")
        verified = await command(core, "backup", "--verify", str(archive))
        assert verified["shards"] == [0, 1]
        answer = await destroyed_and_restored(core, archive)
        assert not any("[core] shards" in note for note in answer["notes"])
        places = [core.home, core.home / "shards" / "01"]
        assert not any((place / RESTORING).exists() for place in places)
        assert len({(place / NAME).read_bytes() for place in places}) == 2
        await lab.hops[0].set_behaviour("accept")
        await core.start()
        await everything_held(core, len(ids))
        assert lab.messages == []
        assert {item["queue_id"] for item in await core.listed()} == set(ids)
        for shard in (0, 1):
            lanes = (await core.ask_shard(shard, "size"))["lanes"]
            assert lanes["hold"]["messages"] == len([each for each in ids.values() if each == shard])
        own = await core.listed(reason="wait")
        assert len(own) == 2
        assert await release_all(core) == len(ids) - 2
        await core.order("release", own[0]["queue_id"])
        await core.order("release", own[1]["queue_id"])
        await core.until_removed(*ids)
        arrived = recipients_of(lab.messages)
        assert len(arrived) == len(ids)  # all are removed, so each came once
        names = [f"{name}{shard}@example.org" for name in ("deferred", "held") for shard in (0, 1)]
        assert set(arrived) - {"gone@example.org"} == {*names, "big@example.org"}


async def test_fewer_shards_in_the_settings_are_named_and_the_others_drain(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab, SECTIONS) as core:
        ids = await filled(core)
        archive = await backed_up(core, "--queue")
        core.set_shards(1)
        answer = await destroyed_and_restored(core, archive)
        (note,) = [note for note in answer["notes"] if "[core] shards" in note]
        assert note.startswith("the backup has 2 shards, and [core] shards is 1: shard 1 drains")
        await lab.hops[0].set_behaviour("accept")
        await core.start()
        await everything_held(core, len(ids))
        assert core.numbers() == [0, 1]


async def test_what_is_there_is_refused_or_moved_aside(tmp_path: Path) -> None:
    async with Lab([f"{NEVER}:127.0.0.1:0"]) as lab, running_shards(tmp_path, lab, SECTIONS) as core:
        ids = await filled(core)
        archive = await backed_up(core, "--queue", "--reports")
        core.stop()
        await core.control.close()
        said = await command(core, "restore", str(archive), fails=True)
        assert f"{core.home / 'shards'}" in said
        answer = await restored(core, archive, "--move-aside")
        assert any(Path(path).name.startswith("shards.before-") for path in answer["moved_aside"])
        await core.start()
        await everything_held(core, len(ids))
