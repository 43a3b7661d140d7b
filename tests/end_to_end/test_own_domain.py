"""An address without a domain leaves with the own one, over SMTP, from a local program, and handed in; without [rewriting].
Date and Message-ID that are missing are added on the first two ways, and the log has the ID."""

from __future__ import annotations

import re
import smtplib
from pathlib import Path

from mailcore.log.disk import Disk
from mailcore.pickup.dropped import Draft, Submission
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.running.running_core import RunningCore, Sections

DATA = b"From: root (Cron Daemon)\r\nTo: root\r\nSubject: root\r\n\r\nTo: root\r\n"
SENT = b"From: root@own.example (Cron Daemon)\r\nTo: root@own.example\r\nSubject: root\r\n"


async def test_header_addresses_are_completed_on_each_way_in(tmp_path: Path) -> None:
    async with serving(ScriptedServer()) as hop:
        routes = {"*": f"smtp:[127.0.0.1]:{hop.port}"}
        sections: Sections = {
            "lenient": {"domain": "own.example"},
            "rewriting": {"local_header_rewrite_clients": ["127.0.0.0/8"]},
        }
        core = RunningCore(tmp_path, routes, sections)
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
            log_file = core.home / "log" / "mail.log"
            await eventually(lambda: log_file.read_text().count("message-id=") >= 3)
            log = log_file.read_text()
        finally:
            await core.control.close()
            core.stop()
    recipients = sorted(each.partition(">")[0] for message in hop.messages for each in message.recipients)
    assert recipients == ["<inject@example.org", "<program@example.org", "<smtp@example.org"]
    for message in hop.messages:
        assert SENT in message.data
        assert message.data.rstrip(b".\r\n").endswith(b"\r\n\r\nTo: root")
        added = re.search(rb"\r\nMessage-ID: (<[^\r]*>)\r\nDate: [^\r]*\r\n\r\n", message.data)
        assert (added is None) is message.recipients[0].startswith("<inject@")
        assert added is None or f"message-id={added[1].decode()}" in log
