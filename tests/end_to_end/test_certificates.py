"""A receiver that is killed while the files of the certificate are bad: the new one has the TLS that the others still have."""

from __future__ import annotations

import asyncio
import os
import smtplib
from pathlib import Path

from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.server_in_process import any_certificate
from tests.running.running_core import RunningCore


def opened(pid: int) -> list[str]:
    """What a process has open of the memory where the keys are."""
    found = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    return [each for each in found if "waypost-kept" in each]


async def test_a_killed_receiver_takes_no_mail_in_the_clear_because_a_renewal_failed(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "mail.example.org", 90)
    receiver = {"processes": 1, "tls_certificate": str(pem), "tls_key": str(pem)}
    core = RunningCore(tmp_path, {"*": f"smtp:[127.0.0.1]:{free_port()}"}, {"receiver": receiver})

    def is_encrypted() -> bool:
        with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
            client.ehlo()
            return client.has_extn("starttls") and client.starttls(context=any_certificate())[0] == 220

    def refusals() -> list[str]:
        return [line["instead"] for line in core.log() if line["event"] == "certificate_refused"]

    await core.start()
    try:
        assert await asyncio.to_thread(is_encrypted)
        pem.write_bytes(b"not a certificate")
        await eventually(lambda: len(refusals()) == 1, "the refusal")
        for count in (2, 3):  # the one that the first left to the second, too
            before = core.processes()["receiver.0"]
            await core.kill_now("receiver.0")
            await eventually(lambda before=before: core.processes()["receiver.0"] != before, "the new receiver")
            await eventually(lambda count=count: len(refusals()) == count, "its refusal")
            assert await asyncio.to_thread(is_encrypted)
        assert all(each.startswith("the one before stays in use") for each in refusals())
        assert opened(core.processes()["receiver.0"])
        assert not [name for name in ("manager", "control", "deliverer.0") if opened(core.processes()[name])]
    finally:
        await core.control.close()
        core.stop()
