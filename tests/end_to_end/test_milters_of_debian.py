"""Milters that are not ours: Debian's opendkim signs what dkimpy verifies, and Debian's rspamd refuses and marks."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import smtplib
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import dkim
import pytest

from mailcore.dkim.key import new_key
from tests.end_to_end.appliance import free_port
from tests.eventually import eventually
from tests.receiver.server_in_process import without_trace
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore

pytestmark = pytest.mark.long  # ./test --long names the packages

HEADER = (
    b"From: Alice <alice@example.org>\r\nTo: bob@elsewhere.example\r\nSubject: An\r\n\toffer\r\n"
    b"Date: Mon, 23 Nov 2026 10:00:00 +0000\r\n"
)
SMALL = HEADER + b"\r\nHello.\r\n.a line with a dot \r\n..two\r\n\r\n\r\n"
LARGE = HEADER + b"\r\n" + 20_000 * b".0123456789 \r\n"  # beyond inline_limit
GTUBE = b"XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"  # the test text of all spam filters


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/bin")
    assert found is not None, f"Debian's {name} is missing"
    return found


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def refused_and_accepted(port: int) -> int:
    """The code that spam gets; behind it, in the same session, comes a message."""
    with smtplib.SMTP("127.0.0.1", port, local_hostname="client.example") as client:
        with pytest.raises(smtplib.SMTPDataError) as refused:
            client.sendmail("a@sender.example", ["bob@elsewhere.example"], HEADER + b"\r\n" + GTUBE + b"\r\n")
        client.sendmail("a@sender.example", ["bob@elsewhere.example"], SMALL)
    return refused.value.smtp_code


@contextlib.asynccontextmanager
async def running(directory: Path, command: Sequence[str], port: int, catcher: Catcher) -> AsyncIterator[RunningCore]:
    """The milter, and a core that uses it."""
    out = (directory / "milter.out").open("wb")
    process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
    core = RunningCore(directory, {"*": catcher.route}, {"receiver": {"milters": [f"inet:127.0.0.1:{port}"]}})
    try:
        await eventually(lambda: listens(port) or process.returncode is not None, "the milter's port")
        assert process.returncode is None, (directory / "milter.out").read_text()
        await core.start()
        yield core
    finally:
        await core.control.close()
        core.stop()
        if process.returncode is None:
            process.terminate()
        await process.wait()
        out.close()


async def test_opendkim_signs_and_dkimpy_verifies_what_is_delivered(tmp_path: Path) -> None:
    key, port = new_key("rsa"), free_port()
    (tmp_path / "key.pem").write_bytes(key.pem)
    (tmp_path / "key.pem").chmod(0o600)
    settings = tmp_path / "opendkim.conf"
    settings.write_text(
        f"Socket inet:{port}@127.0.0.1\nMode s\nDomain example.org\nSelector s1\nKeyFile {tmp_path}/key.pem\n"
        "RequireSafeKeys no\nInternalHosts 0.0.0.0/0\nSyslog no\nCanonicalization relaxed/simple\n"
    )
    command = [program("opendkim"), "-f", "-x", str(settings)]
    async with Catcher() as catcher, running(tmp_path, command, port, catcher) as core:
        for data in (SMALL, LARGE):
            await core.send("bob@elsewhere.example", data=data)
        await eventually(lambda: len(catcher.caught) == 2, "both messages")
        for _, _, arrived in catcher.caught:
            assert arrived.count(b"DKIM-Signature:") == 1
            assert arrived.index(b"DKIM-Signature:") < arrived.index(b"From: Alice")
            assert dkim.DKIM(arrived).verify(dnsfunc=lambda name, timeout=5: key.record.encode())
        for data in (SMALL, LARGE):
            assert any(arrived.endswith(data) for _, _, arrived in catcher.caught), "something else was changed"
        assert not [line for line in core.log() if line["event"] == "milter_failed"]


async def test_rspamd_refuses_spam_and_lets_mail_through(tmp_path: Path) -> None:
    port, controller = free_port(), free_port()
    (tmp_path / "tld").write_text("com\nexample\norg\n")
    settings = tmp_path / "rspamd.conf"
    settings.write_text(
        f"""
        options {{
            pidfile = "{tmp_path}/pid"; tempdir = "{tmp_path}"; hs_cache_dir = "{tmp_path}"; url_tld = "{tmp_path}/tld";
            disable_hyperscan = yes; filters = ""; dns {{ nameserver = "127.0.0.1:1"; timeout = 0.1s; retransmits = 1; }}
        }}
        logging {{ type = "console"; level = "info"; }}
        actions {{ reject = 15; add_header = 6; }}
        worker "rspamd_proxy" {{
            bind_socket = "127.0.0.1:{port}"; milter = yes; timeout = 10s; count = 1;
            upstream "local" {{ default = yes; self_scan = yes; }}
        }}
        worker "controller" {{ bind_socket = "127.0.0.1:{controller}"; count = 1; }}
        """
    )
    command = [program("rspamd"), "-f", "-i", "-c", str(settings)]  # -i: also as root
    async with Catcher() as catcher, running(tmp_path, command, port, catcher) as core:
        for data in (SMALL, LARGE):
            await core.send("bob@elsewhere.example", data=data)
        await eventually(lambda: len(catcher.caught) == 2, "both messages")
        assert sorted(without_trace(arrived) for _, _, arrived in catcher.caught) == sorted([SMALL, LARGE])
        assert await asyncio.to_thread(refused_and_accepted, core.port) == 554
        await eventually(lambda: len(catcher.caught) == 3, "the message after it")
        refusals = [line for line in core.log() if line["event"] == "refused"]
        assert [line["milter"] for line in refusals] == [f"inet:127.0.0.1:{port}"]
        assert not [line for line in core.log() if line["event"] == "milter_failed"]
