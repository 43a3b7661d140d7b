"""Patterns of [rewriting] keep no session waiting: all of them together have one time for a message, then it gets 451."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.live_maps import LiveMaps
from tests.eventually import eventually
from tests.receiver.configured_receiver import US, configured


async def test_a_message_whose_patterns_take_too_long_stays_with_the_client(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases"
    aliases.write_text("".join(f"/^(\\w+x?)+{number}y@/ a@example.org\n" for number in range(1_000)))
    text = f'[rewriting]\nvirtual_alias_maps = ["regexp:{aliases}"]\naddress_maps_time_ms = 1\n'
    async with configured(tmp_path, text) as server:
        rewriting = server.receiving.reception.rewriting
        assert isinstance(rewriting, LiveMaps)
        await eventually(lambda: rewriting.files is not None)
        client = await server.client(US)
        await client.to_data(b"a@sender.example", *(b"user%d@example.net" % number for number in range(100)))
        assert (await client.ask(b"Subject: x\r\n\r\nx\r\n.")).startswith(b"451 ")
        assert "the patterns take too long" in server.mail_log
        assert server.lane.messages == []
