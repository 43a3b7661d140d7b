"""The commands of Postfix on the real core: list, hold, release, print, requeue, delete, and what is said while it is down."""

from __future__ import annotations

import asyncio
import os
import sys
import urllib.request
from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import free_port
from tests.eventually import eventually
from tests.running.running_core import DATA, RunningCore, Sections, running

MAIN = [sys.executable, "-m", "mailcore.cli.postfix.main"]


async def run(core: RunningCore, *argv: str) -> tuple[int, str, str]:
    program = await asyncio.create_subprocess_exec(
        *MAIN, *argv, stdout=-1, stderr=-1, env={**os.environ, "WAYPOST_CONFIG": str(core.config), "TZ": "UTC"}
    )
    out, err = await program.communicate()
    return int(program.returncode or 0), out.decode(), err.decode()


async def scraped(port: int) -> dict[str, float]:
    """The page of the metrics, by name with labels."""

    def get() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    async def there() -> str | None:
        try:
            return await asyncio.to_thread(get)
        except OSError:
            return None

    text = await eventually(there, "the page of the metrics", look_every_s=0.2)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_an_operator_works_with_the_commands_of_postfix(tmp_path: Path) -> None:
    away = {"away.example": "smtp:[127.0.0.1]:1"}
    # Deferred mail rests for a minute, so that it lies where it is while the commands run.
    port = free_port()
    sections: Sections = {
        "metrics": {"listen": f"127.0.0.1:{port}"},
        "export": {"enabled": True},
        "queue": {"retry_ladder_s": [60]},
        "scheduler": {"minimal_backoff_time": 60, "maximal_backoff_time": 60},
    }
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab, sections, routes=away) as core:
        assert await run(core, "mailq") == (0, "Mail queue is empty\n", "")
        one = await core.send("a@away.example")
        two = await core.send("b@away.example", "c@away.example")
        for queue_id in (one, two):
            await core.until_in(queue_id, "retry")
        status, out, err = await run(core, "postqueue", "-p")
        assert (status, err) == (0, "")
        assert out.startswith("-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------\n")
        assert out.count("Connection refused") == 2, "one reason for both recipients"
        assert "\n                                         c@away.example\n\n" in out
        assert out.endswith(" Kbytes in 2 Requests.\n")
        assert await run(core, "postsuper", "-h", one) == (
            0, "", f"postsuper: {one}: placed on hold\npostsuper: Placed on hold: 1 message\n",
        )  # fmt: skip
        assert f"\n{one}! " in (await run(core, "mailq"))[1]
        table = (await run(core, "qshape", "deferred"))[1].splitlines()
        assert table[1].split()[:3] == ["TOTAL", "2", "2"]
        assert table[2].split()[:2] == ["away.example", "2"]
        status, text, _ = await run(core, "postcat", "-q", two)
        assert status == 0
        assert text.startswith(f"*** ENVELOPE RECORDS deferred/{two} ***\nmessage_size: ")
        assert "\nrecipient: c@away.example\n*** MESSAGE CONTENTS " in text
        assert DATA.replace(b"\r\n", b"\n").decode() in text
        assert (await run(core, "postcat", "-bq", two))[1].startswith("\nHello.\n")
        header = (await run(core, "postcat", "-hq", two))[1]
        assert header.startswith("Received: ")
        assert header.endswith("Message-ID: <one@sender.example>\n")
        assert (await run(core, "postqueue", "-i", two))[0] == 0
        assert (await run(core, "postqueue", "-i", "1K0RDGV4BE900"))[0] == 69
        for words in (("postqueue", "-i", "x y"), ("postqueue", "-i", "1K0RDGV4BE900"), ("postcat", "-q", "x y")):
            assert "queue_ids[" not in (await run(core, *words))[2], words
        await core.until_in(two, "retry")
        assert (await run(core, "postsuper", "-d", "ALL", "hold"))[2].endswith("postsuper: Deleted: 1 message\n")
        assert {each["queue_id"] for each in await core.listed()} == {two}
        assert (await run(core, "postsuper", "-d", "ALL"))[2].endswith("postsuper: Deleted: 1 message\n")
        assert await run(core, "mailq") == (0, "Mail queue is empty\n", "")
        before = await scraped(port)
        assert before["waypost_up"] == 1
        assert before['waypost_recipients_total{outcome="deferred"}'] >= 3
        assert before['waypost_process_up{process="manager"}'] == 1
        assert before['waypost_balance_difference{of="messages"}'] == 0
        assert before['waypost_transport_recipients_total{transport="smtp",outcome="deferred"}'] >= 3
        assert 0 < before["waypost_export_lag_bytes"] < before["waypost_export_lag_limit_bytes"], (
            "nothing is sealed yet"
        )
        core.stop()
        for argv, expected in ((("mailq",), 69), (("postqueue", "-f"), 69), (("postsuper", "-d", "ALL"), 1)):
            status, out, err = await run(core, *argv)
            assert (status, out) == (expected, "")
            assert "not running" in err
        await core.start()
        after = await scraped(port)
        kept = [
            name for name in before if name.startswith(("waypost_accepted", "waypost_recipients", "waypost_finished"))
        ]
        assert len(kept) >= 8
        assert [name for name in kept if after[name] < before[name]] == [], "a counter went down with a restart"
