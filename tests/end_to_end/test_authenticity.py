"""Mail of others is checked when it comes and sealed when it goes on; another program verifies the seal and the signature."""

from __future__ import annotations

from pathlib import Path

import dkim

from mailcore.dkim.key import new_key
from tests.authenticity.mail import rsa_key, signed
from tests.deliverer.dns_server import NameServer, answering
from tests.eventually import eventually
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore

RECORDS = {
    "s._domainkey.shop.example TXT": [f'"{rsa_key()[1]}"'],
    "_dmarc.shop.example TXT": ['"v=DMARC1; p=reject"'],
    "shop.example TXT": ['"v=spf1 -all"'],
}


async def test_mail_of_others_goes_on_with_its_results_and_a_seal(tmp_path: Path) -> None:
    key = new_key("rsa")
    file = tmp_path / "arc.pem"
    file.write_bytes(key.pem)
    file.chmod(0o640)
    async with Catcher() as catcher, answering(NameServer(RECORDS)) as names:
        sections: dict[str, dict[str, object]] = {
            "relay": {"networks": ["192.0.2.0/24"], "domains": ["example.org"]},
            "deliverer": {"nameservers": [names.text]},
            "authenticity": {"evaluate": "mx", "authserv_id": "mx.example.org", "dmarc": "quarantine"},
            "arc": {"domain": "example.org", "selector": "2026a", "key": str(file)},
        }
        core = RunningCore(tmp_path, {"*": catcher.route}, sections)
        await core.start()
        try:
            held = await core.send("b@example.org", sender="ann@shop.example", data=signed().replace(b"noon", b"night"))
            queue_id = await core.send("b@example.org", sender="ann@shop.example", data=signed())
            await eventually(lambda: bool(catcher.caught), "the message")
            ((_, _, data),) = catcher.caught
            records = {b"2026a._domainkey.example.org.": key.record.encode()}
            state, _, why = dkim.arc_verify(data, dnsfunc=lambda name, timeout=5: records.get(name))
            assert state == b"pass", why
            assert dkim.verify(data, dnsfunc=lambda name, timeout=5: rsa_key()[1].encode())
            assert data.startswith(b"ARC-Seal: i=1; a=rsa-sha256; cv=none;\r\n")
            assert b"\r\nAuthentication-Results: mx.example.org;\r\n\tspf=none smtp.helo=client.example;" in data
            log = (core.home / "log" / "mail.log").read_text()
            assert f" {queue_id}: spf=fail dkim=pass arc=none dmarc=pass\n" in log
            assert f" {held}: spf=fail dkim=fail arc=none dmarc=fail; hold: DMARC of shop.example wants reject\n" in log
            shown = await core.ask("show", queue_id=held, recipients=False)
            assert shown["envelope"]["authentication"] == "spf=fail dkim=fail arc=none dmarc=fail"
            (accepted,) = [
                each for each in (await core.ask("history", queue_id=queue_id))["events"] if each["event"] == "accepted"
            ]
            assert accepted["authentication"] == "spf=fail dkim=pass arc=none dmarc=pass", "also when it is gone"
            assert shown["envelope"]["held_because"] == "DMARC of shop.example wants reject"
        finally:
            await core.control.close()
            core.stop()
