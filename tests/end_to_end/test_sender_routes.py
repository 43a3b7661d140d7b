"""Routes by the sender of a message, and next hops that are tried when no host of the destination can be reached."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import free_port
from tests.running.running_core import SENDER, Sections, recipients_of, route_to, running


async def test_mail_goes_by_the_route_of_its_sender_also_when_it_is_tried_again(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "reject(1, 451):127.0.0.1:0", "accept:127.0.0.1:0"]) as lab:
        sections: Sections = {"sender_routes": {'"sender.example"': route_to(lab, 1, "relay")}}
        async with running(tmp_path, lab, sections, routes={"own.example": route_to(lab, 2)}) as core:
            own = await core.send("a@any.example", "b@own.example")
            other = await core.send("c@any.example", sender="kim@other.example")
            await core.until_removed(other)
            assert recipients_of(lab.hops[0].messages) == ["c@any.example"]
            assert recipients_of(lab.hops[2].messages) == ["b@own.example"]
            assert (await core.size())["destinations"] == {route_to(lab, 1, "relay"): 1}
            where = await core.ask("resolve", address="a@any.example", sender=SENDER)
            assert where["destination"] == route_to(lab, 1, "relay")
            assert (await core.ask("resolve", address="a@any.example"))["destination"] == route_to(lab, 0)
            await lab.hops[1].set_behaviour("accept")
            await core.until_removed(own)
            assert recipients_of(lab.hops[1].messages) == ["a@any.example"]


async def test_mail_for_a_host_that_cannot_be_reached_goes_by_the_fallback(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0", "accept:127.0.0.1:0", "reject(1, 550):127.0.0.1:0"]) as lab:
        (host, port), away = lab.hops[1].address, f"smtp:[127.0.0.1]:{free_port()}"
        sections: Sections = {"transports.smtp": {"fallback_relay": [f"[127.0.0.1]:{free_port()}", f"[{host}]:{port}"]}}
        routes = {"away.example": away, "refusing.example": route_to(lab, 2)}
        async with running(tmp_path, lab, sections, routes=routes) as core:
            queue_id = await core.send("a@away.example", "b@refusing.example", "c@open.example")
            await core.until_removed(queue_id)
            assert recipients_of(lab.hops[1].messages) == ["a@away.example"]  # what was refused does not go there
            assert recipients_of(lab.hops[0].messages) == ["c@open.example"]
            log = (core.home / "log" / "mail.log").read_text()
            assert f"to=<a@away.example>, relay={host}[{host}]:{port}" in log
