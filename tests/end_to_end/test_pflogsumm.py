"""Debian's pflogsumm reads the log of a running core, and counts what clients and next hops saw."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from tests.maillog.test_maillog import pflogsumm, totals
from tests.running.running_core import route_to, running


async def test_pflogsumm_counts_what_clients_and_next_hops_saw(tmp_path: Path) -> None:
    hops = ["accept:127.0.0.1:0", "reject(1, 550, rcpt):127.0.0.1:0", "reject(1, 450, rcpt):127.0.0.1:0"]
    async with Lab(hops) as lab:
        routes = {
            "gone.example": route_to(lab, 1),
            "later.example": route_to(lab, 2),
            "sender.example": route_to(lab, 0),
        }
        async with running(tmp_path, lab, routes=routes) as core:
            for number in range(3):
                await core.until_removed(await core.send(f"r{number}@example.org"))
            await core.until_removed(await core.send("a@gone.example", "b@gone.example"))
            await core.until_in(await core.send("a@later.example"), "retry.")
            await lab.wait_for(4)  # the three, and the bounce

            async def read() -> bool:
                found = totals(pflogsumm(core.home / "log" / "mail.log"))
                return found["delivered"] >= 4 and found["deferred"] >= 1

            await core.eventually(read, "all lines of the log")
            report = pflogsumm(core.home / "log" / "mail.log")
    found = totals(report)
    assert found["received"] == 5, "those of clients, not the bounce"
    assert (found["delivered"], found["bounced"], found["deferred"]) == (4, 2, 1)
    assert (found["rejected"], found["senders"], found["recipients"]) == (0, 1, 4)
