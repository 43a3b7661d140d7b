"""An address without a domain leaves with the own one, over SMTP, from a local program, and handed in; without [rewriting]."""

from __future__ import annotations

import smtplib
from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.pickup.dropped import Draft, Submission
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.running.running_core import RunningCore

DATA = b"From: root (Cron Daemon)\r\nTo: root\r\nSubject: root\r\n\r\nTo: root\r\n"
SENT = b"From: root@own.example (Cron Daemon)\r\nTo: root@own.example\r\nSubject: root\r\n"


async def test_header_addresses_are_completed_on_each_way_in(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as hop:
        routes = {"*": f"smtp:[127.0.0.1]:{hop.port}"}
        core = RunningCore(tmp_path, routes, {"lenient": {"domain": "own.example"}})
        await core.start()
        try:

            def over_smtp() -> None:
                with smtplib.SMTP("127.0.0.1", core.port) as client:
                    client.sendmail("a@example.org", ["smtp@example.org"], DATA)

            await in_thread(over_smtp)
            await core.ask("inject_begin", sender="a@example.org", recipients=["inject@example.org"])
            await core.ask("inject_data", data=DATA)
            await core.ask("inject_end")
            draft = Draft(Disk(), str(core.home / "maildrop"))
            draft.begin(Submission(sender="a@example.org", recipients=("program@example.org",), submitted_at=0.0))
            draft.write(DATA.replace(b"\r\n", b"\n"))
            draft.submit()
            await eventually(lambda: len(hop.messages) == 3)
        finally:
            await core.control.close()
            core.stop()
    recipients = sorted(each.partition(">")[0] for message in hop.messages for each in message.recipients)
    assert recipients == ["<inject@example.org", "<program@example.org", "<smtp@example.org"]
    for message in hop.messages:
        assert SENT in message.data
        assert message.data.rstrip(b".\r\n").endswith(b"\r\n\r\nTo: root")
