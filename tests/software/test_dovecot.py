"""LMTP to Debian's Dovecot: what lies in the mailbox, and one reply for each recipient."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.appliance import free_port
from tests.end_to_end.test_submission import in_thread
from tests.eventually import eventually
from tests.software.core import core_with, smtp_session
from tests.software.programs import open_directory, program, started
from tests.software.test_postfix import MESSAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

_CONFIGURATION = """
protocols = lmtp
listen = 127.0.0.1
base_dir = {directory}/run
state_dir = {directory}/state
log_path = {directory}/log
ssl = no
mail_location = maildir:{directory}/mail/%n
first_valid_uid = 1
postmaster_address = postmaster@example.test
lmtp_save_to_detail_mailbox = no
service anvil {{
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {port}
  }}
}}
passdb {{
  driver = passwd-file
  args = username_format=%n {directory}/users
}}
userdb {{
  driver = passwd-file
  args = username_format=%n {directory}/users
}}
"""
LMTP = {"transports.lmtp": {"protocol": "lmtp"}}
USER_ID = 8  # Debian's mail


@contextlib.asynccontextmanager
async def dovecot(directory: Path, *users: str) -> AsyncIterator[tuple[Path, int]]:
    """The directory of its mailboxes, and the port of LMTP."""
    port = free_port()
    for name in ("run", "state", "mail"):
        (directory / name).mkdir()
    os.chown(directory / "mail", USER_ID, USER_ID)
    lines = (f"{user}:{{PLAIN}}x:{USER_ID}:{USER_ID}::{directory}/mail/{user}::\n" for user in users)
    (directory / "users").write_text("".join(lines))
    configuration = directory / "dovecot.conf"
    configuration.write_text(_CONFIGURATION.format(directory=directory, port=port))
    async with started((program("dovecot"), "-F", "-c", configuration), port, directory / "log"):
        yield directory / "mail", port


async def test_dovecot_stores_what_came(tmp_path: Path) -> None:
    with open_directory() as directory:
        async with serving(ScriptedServer()) as author, dovecot(directory, "b", "c") as (mail, port):
            routes = {"example.org": f"lmtp:[127.0.0.1]:{port}"}
            async with core_with(tmp_path, author.port, Authority(tmp_path), LMTP, routes) as core:
                recipients = ["b@example.org", "gone@example.org", "c@example.org"]
                await in_thread(smtp_session, core.port, "a@sender.example", recipients, MESSAGE, [], [])
                await eventually(lambda: author.messages, (directory / "log").read_text)
                await core.until_empty()  # what the manager logs may come a moment after the report
                deliveries = {
                    line["recipient"]: (line["status"], line["dsn"])
                    for line in core.log()
                    if line["event"] == "delivery"
                }
                stored = [path.read_bytes() for user in "bc" for path in (mail / user / "new").iterdir()]
    (bounce,) = author.messages
    assert len(stored) == 2
    assert all(each.replace(b"\r\n", b"\n").endswith(MESSAGE.replace(b"\r\n", b"\n")) for each in stored)
    assert deliveries["b@example.org"] == deliveries["c@example.org"] == ("sent", "2.0.0")
    assert deliveries["gone@example.org"] == ("bounced", "5.1.1")
    assert b"Final-Recipient: rfc822; gone@example.org" in bounce.data
    assert b"User doesn't exist" in bounce.data
    assert bounce.data.count(b"Final-Recipient:") == 1
