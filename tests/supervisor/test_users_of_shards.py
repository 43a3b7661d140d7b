"""Users of their own with several shards: in the places of all shards each writes where it must, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

from mailcore.lab.lab import Lab
from mailcore.queue.queue_id import shard_of
from tests.running.running_core import route_to
from tests.running.running_shards import RunningShards
from tests.supervisor.test_users import (
    BIG,
    CORE,
    DELIVERER,
    GROUP,
    PORTAL,
    RECEIVER,
    OwnUsers,
    as_root,
    entered,
    place,
    reached,
    status_of,
)

__all__ = ["place"]  # the fixture
ASK = """
import json, sys
from mailcore.control.client import ControlClient
print(json.dumps(ControlClient(sys.argv[1]).call("size")))
"""


class OwnUsersOfShards(OwnUsers, RunningShards):
    """Several shards, started by ``games``."""


@as_root
async def test_in_all_shards_each_writes_where_it_must_and_nowhere_else(place: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0"]) as lab:
        sections: dict[str, dict[str, object]] = {"export": {"enabled": True}, "control": {"group": PORTAL}}
        core = OwnUsersOfShards(place, {"*": route_to(lab, 0)}, sections, shards=2)
        await core.start()
        try:
            queue_ids = await core.send_many(12)
            assert {shard_of(each) for each in queue_ids} == {0, 1}
            queue_ids += [await core.send(f"big{each}@example.org", data=BIG) for each in range(8)]
            queue_ids += [await core.inject(f"i{each}@example.org") for each in range(2)]
            await core.until_all_removed(queue_ids)  # deferred once: it was in the lanes of both, and in the spool
            processes = core.processes()
            owners = {
                name: pwd.getpwuid(int(status_of(pid)["Uid"].split()[0])).pw_name for name, pid in processes.items()
            }
            of_shards = [f"{name}{suffix}" for name in ("manager", "control", "exporter") for suffix in ("", "@1")]
            assert owners == {
                **dict.fromkeys(("supervisor", "supervisor@0", "supervisor@1", *of_shards), CORE),
                **dict.fromkeys(("receiver.0", "receiver.0@1"), RECEIVER),
                **dict.fromkeys(("deliverer.0", "deliverer.0@1"), DELIVERER),
            }
            held = {
                int(status_of(pid)["CapPrm"], 16)
                for name, pid in processes.items()
                if not name.startswith("supervisor")
            }
            assert held == {0}
            everything = [core.home, *core.home.rglob("*")]
            sockets = {core.run_directory / "shards" / number / "manager.sock" for number in ("00", "01")}
            assert reached(place, DELIVERER, [GROUP], os.W_OK, everything) == {*sockets, core.home / "maildrop"}
            # A receiver writes its lane, the spool and the log.
            written = reached(place, RECEIVER, [GROUP], os.W_OK, everything)
            allowed = {"queue", "spool", "log", "manager.sock", "maildrop"}
            assert [each for each in written if not allowed & set(each.relative_to(core.home).parts)] == []
            lanes = {each.name for each in written if each.parent.name == "queue"}
            assert lanes == {"incoming.0"}
            # The portal's user may ask both shards and read their events; a password may be in the settings.
            events = {core.home / "events", core.home / "shards/01/events"}
            stored = {core.run_directory / "settings.json", core.run_directory / "shards/01/settings.json"}
            assert reached(place, PORTAL, [], os.R_OK, events | stored) == events
            command = ["setpriv", f"--reuid={PORTAL}", f"--regid={PORTAL}", "--clear-groups", sys.executable, "-c"]
            done = await asyncio.to_thread(
                subprocess.run,
                entered(place, [*command, ASK, str(core.run_directory / "control.sock")]),
                check=True, capture_output=True, text=True, cwd="/",
            )  # fmt: skip
            assert json.loads(done.stdout)["unheard"] == []
        finally:
            await core.control.close()
            core.stop()
