"""Kept files under users of their own: each process reads what it needs, and no other reads a private key.

law: kept-key-stays-here.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.test_kept import AUTHORITY, offered, put, use
from tests.running.catcher import Catcher
from tests.running.running_core import route_to
from tests.supervisor.test_users import CORE, DELIVERER, GROUP, PORTAL, RECEIVER, OwnUsers, as_root, place, reached

__all__ = ["place"]


@as_root
async def test_receivers_read_keys_of_tls_deliverers_dkim_keys_and_others_neither(place: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, Catcher() as catcher:
        core = OwnUsers(place, {"*": route_to(lab, 0), "sender.example": catcher.route})
        await core.start()
        try:
            made = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
            await use(core, made["file"], "receiver", "tls_certificate")
            key = await core.ask("kept_make", kind="dkim", domain="sender.example", selector="s1")
            await use(core, key["file"], "dkim")
            aliases = await core.ask(
                "kept_put", kind="map", name="aliases", text="all@example.org kim@sender.example\n"
            )
            await use(core, aliases["file"], "rewriting", "virtual_alias_maps")
            assert await asyncio.to_thread(offered, core) == ("mx.example.org",)
            await core.send("all@example.org", data=b"From: a@sender.example\r\nSubject: x\r\n\r\nHello.\r\n")
            await core.until_empty()
            assert b"DKIM-Signature:" in catcher.caught[0][2]
            files = {path.parent.name: path for path in (core.home / "kept").glob("*/*")}
            assert files.keys() == {"certificate", "key", "dkim", "map"}
            for user, groups, kinds in (
                (RECEIVER, [GROUP], {"certificate", "key", "map"}),
                (DELIVERER, [GROUP], {"certificate", "dkim"}),
                (PORTAL, [], {"certificate"}),
                (CORE, [GROUP, RECEIVER], {"certificate", "key", "map", "dkim"}),
            ):
                found = reached(place, user, groups, os.R_OK, files.values())
                assert {path.parent.name for path in found} == kinds, user
                if user != CORE:
                    assert (
                        reached(
                            place, user, groups, os.W_OK, [*files.values(), *(each.parent for each in files.values())]
                        )
                        == set()
                    )
        finally:
            await core.control.close()
            core.stop()
