"""What is answered out of the settings: parameters with their explanations, routes, where an address goes, disks."""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mailcore.control import tables
from mailcore.control.async_client import AsyncControlClient
from mailcore.dkim.key import new_key
from mailcore.log.disk import Disk
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, SUSPENDED_UNTIL, TRANSPORT_SCOPE
from mailcore.supervisor.room import ballast_of
from tests.control import running_control as running_module
from tests.control.running_control import RunningControl, open_control
from tests.doctor.sample_host import certificate
from tests.eventually import eventually
from tests.routing.nameserver import name_server


async def test_every_parameter_is_told_with_bounds_unit_and_explanation(
    running: RunningControl, control: AsyncControlClient
) -> None:
    answer = await control.call("parameters")
    scopes = answer["scopes"]
    assert [each["name"] for each in scopes["global"]] == list(GLOBAL_SCOPE)
    assert [each["name"] for each in scopes["transport"]] == list(TRANSPORT_SCOPE)
    assert [each["name"] for each in scopes["destination"]] == [n for n in DESTINATION_SCOPE if n != SUSPENDED_UNTIL]
    assert answer["transports"] == ["bulk", "relay", "smtp"]
    cost = next(each for each in scopes["transport"] if each["name"] == "delivery_slot_cost")
    assert cost["kind"] == "whole"
    assert (cost["low"], cost["high"], cost["default"], cost["unit"]) == (0, 10_000, 5, "entries")
    assert "k/(k-1)" in cost["explanation"]
    feedback = scopes["destination"][2]
    assert (feedback["kind"], feedback["default"]) == ("feedback", "1")
    assert "concurrency" in feedback["allowed"]
    assert answer["configured"][""]["minimal_backoff_time"] == running.settings.scheduler.minimal_backoff_time
    assert answer["configured"]["smtp"]["destination_concurrency_positive_feedback"] == "1"
    kinds = {each["kind"] for parameters in scopes.values() for each in parameters}
    assert kinds == {"whole", "number", "feedback", "flag"}
    assert running.manager.requests == []


async def test_disks_say_what_is_free_and_what_is_kept(running: RunningControl, control: AsyncControlClient) -> None:
    disks = (await control.call("disks"))["disks"]
    assert [each["what"] for each in disks] == ["queue", "spool", "log"]
    assert disks[0]["path"] == str(running.settings.queue_directory)
    total = shutil.disk_usage(running.settings.queue_directory).total
    assert {each["total_bytes"] for each in disks} == {total}
    assert all(0 < each["free_bytes"] <= total for each in disks)
    assert len({each["device"] for each in disks}) == 1
    assert disks[0]["reserve_bytes"] == running.settings.queue.reserve_bytes
    limits = running.settings.queue
    assert (disks[0]["ballast_bytes"], disks[0]["ballast_inodes"]) == (0, 0), "no manager has taken it"
    ballast_of(running.settings, Disk()).keep()
    for each in (await control.call("disks"))["disks"][:2]:
        assert (each["ballast_bytes"], each["ballast_bytes_whole"]) == (limits.ballast_bytes, limits.ballast_bytes)
        assert (each["ballast_inodes"], each["ballast_inodes_whole"]) == (limits.ballast_inodes, limits.ballast_inodes)
    assert disks[2]["ballast_bytes_whole"] == 0


async def test_certificates_say_until_when_they_hold_and_which_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.pem", tmp_path / "second.pem"
    for path, days in ((first, 5), (second, 9)):
        certificate(tmp_path, "mx.example.org", days).rename(path)
    more = "".join(
        (
            f'[receiver]\ntls_certificate = "{first}"\ntls_key = "{first}"\n',
            f'[[certificate]]\nnames = ["b.example.org"]\ncertificate = "{second}"\nkey = "{second}"\n',
        )
    )
    key = tmp_path / "key.pem"
    key.write_bytes(new_key("ed25519").pem)
    key.chmod(0o600)
    more += f'[[dkim]]\ndomain = "example.org"\nselector = "2026a"\nkey = "{key}"\n'
    monkeypatch.setattr(running_module, "CONFIGURATION", f'home = "home"\n{more}')
    async with open_control(manager=False) as running, running.client() as control:
        assert (await control.call("certificates"))["key_records"] == ["2026a._domainkey.example.org"]
        second.write_bytes(second.read_bytes()[:-200])  # damaged while it runs
        one, other = (await control.call("certificates"))["certificates"]
        assert (one["path"], one["names"], one["fault"]) == (str(first), [], "")
        assert 4.9 * 86_400 < one["not_after"] - time.time() < 5.1 * 86_400
        assert (other["names"], other["not_after"]) == (["b.example.org"], None)
        assert str(second) in other["fault"]


# -- routes

ROUTES = """
[deliverer]
nameservers = ["NAMESERVER"]
[routes]
"*" = "relay:[192.0.2.1]:2526"
"example.org" = "smtp"
".example.org" = "bulk"
".deep.example.org" = "bulk:other.example:587"
"User@Example.net" = "smtp:[127.0.0.1]"
"""
ZONE = """
example.org. IN MX 10 mx1.example.org.
example.org. IN MX 20 mx2.example.org.
mx1.example.org. IN A 192.0.2.1
mx2.example.org. IN A 192.0.2.2
mx2.example.org. IN AAAA 2001:db8::2
gone.example.org. IN MX 10 nobody.example.org.
null.example.org. IN MX 0 .
"""


@pytest.fixture
async def routed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncControlClient]:
    """A running with routes and a name server; the manager is away."""
    before = running_module.CONFIGURATION.partition("[routes]")[0]
    with name_server(tmp_path, {"org": ZONE}) as server:
        monkeypatch.setattr(running_module, "CONFIGURATION", before + ROUTES.replace("NAMESERVER", server.text))
        async with open_control(manager=False) as running, running.client() as control:
            yield control


async def test_routes_stand_in_the_order_in_which_they_count(routed: AsyncControlClient) -> None:
    answer = await routed.call("routes")
    assert [(each["pattern"].lower(), each["transport"], each["next_hop"]) for each in answer["routes"]] == [
        ("user@example.net", "smtp", "[127.0.0.1]"),
        ("example.org", "smtp", ""),
        (".deep.example.org", "bulk", "other.example:587"),
        (".example.org", "bulk", ""),
    ]
    assert (answer["default"]["transport"], answer["default"]["next_hop"]) == ("relay", "[192.0.2.1]:2526")
    assert answer["transports"] == ["bulk", "relay", "smtp"]


async def test_without_routes_there_is_a_default(running: RunningControl, control: AsyncControlClient) -> None:
    answer = await control.call("routes")
    assert (answer["routes"], answer["default"]["transport"]) == ([], "smtp")


async def test_an_address_is_resolved_to_its_hosts_as_a_deliverer_would(routed: AsyncControlClient) -> None:
    assert await routed.call("resolve", {"address": "user@example.org"}) == {
        "address": "user@example.org",
        "transport": "smtp",
        "destination": "smtp:example.org",
        "next_hop": "example.org",
        "matched": "example.org",
        "refused": "",
        "hosts": [
            {"preference": 10, "name": "mx1.example.org", "addresses": ["192.0.2.1"]},
            {"preference": 20, "name": "mx2.example.org", "addresses": ["192.0.2.2", "2001:db8::2"]},
        ],
        "dns_error": "",
        "becomes": "",
        "written": "[routes]",
        "fallbacks": [],
        "fallback_scope": "",
        "fallback_written": "",
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("user@EXAMPLE.net", {"matched": "user@example.net", "next_hop": "[127.0.0.1]", "transport": "smtp"}),
        ("other@example.net", {"matched": "*", "destination": "relay:[192.0.2.1]:2526"}),
        ("a@null.example.org", {"matched": ".example.org", "transport": "bulk", "hosts": []}),
        ("a@x.deep.example.org", {"matched": ".deep.example.org", "next_hop": "other.example:587"}),
        ("nonsense", {"matched": "", "transport": "", "hosts": [], "dns_error": ""}),
    ],
)
async def test_the_pattern_that_matched_is_named(
    routed: AsyncControlClient, address: str, expected: dict[str, Any]
) -> None:
    answer = await routed.call("resolve", {"address": address})
    assert {name: answer[name] for name in expected} == expected


async def test_why_there_is_nowhere_to_go_is_told(routed: AsyncControlClient) -> None:
    assert "bad address syntax" in (await routed.call("resolve", {"address": "nonsense"}))["refused"]
    assert "nullMX" in (await routed.call("resolve", {"address": "a@null.example.org"}))["dns_error"]
    assert "nobody.example.org" in (await routed.call("resolve", {"address": "a@gone.example.org"}))["dns_error"]
    hosts = (await routed.call("resolve", {"address": "a@example.com"}))["hosts"]
    assert hosts == [{"preference": None, "name": "192.0.2.1", "addresses": ["192.0.2.1"]}]


async def test_a_name_server_that_says_nothing_is_not_waited_for(
    routed: AsyncControlClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "DNS_S", 0.0)
    assert (await routed.call("resolve", {"address": "a@example.org"}))["dns_error"] == "no answer in 0 s"


async def test_routes_of_a_file_say_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, senders = tmp_path / "transport", tmp_path / "senders"
    file.write_text("# customers\nexample.org relay:[192.0.2.9]\n")
    senders.write_text("<> bulk:[192.0.2.10]\n")
    maps = f"""
[route_maps]
routes = ["{file}"]
sender_routes = ["{senders}"]
[sender_routes]
"example.com" = "bulk:[192.0.2.11]"
"""
    monkeypatch.setattr(running_module, "CONFIGURATION", running_module.CONFIGURATION + maps)
    async with open_control(manager=False) as running, running.client() as control:
        answer = await control.call("routes")
        assert [(each["pattern"], each["file"], each["line"]) for each in answer["routes"]] == [
            ("example.org", str(file), 2)
        ]
        assert (answer["default"]["file"], answer["default"]["line"], answer["more"]) == ("", None, 0)

        async def decided(**more: str) -> tuple[str, str, str]:
            found = await control.call("resolve", {"address": "a@any.example", **more})
            return found["matched"], found["written"], found["next_hop"]

        assert await decided(address="a@example.org", sender="") == ("example.org", f"{file}:2", "[192.0.2.9]")
        assert await decided(sender="") == ("<>", f"{senders}:1", "[192.0.2.10]")
        assert await decided(sender="a@example.com") == ("example.com", "[sender_routes]", "[192.0.2.11]")
        assert (await decided())[:2] == ("*", "[routes]")
        file.write_text("* relay:[192.0.2.12]\n")
        await eventually(lambda: running.server.routes.tables.routes["*"] == "relay:[192.0.2.12]")
        assert await decided(address="a@example.org") == ("*", f"{file}:1", "[192.0.2.12]")
        monkeypatch.setattr(tables, "ROUTES_SHOWN_MAX", 1)
        file.write_text("a.example bulk\nb.example bulk\nc.example bulk\n")
        await eventually(lambda: len(running.server.routes.tables.routes) == 4)
        answer = await control.call("routes")
        assert ([each["pattern"] for each in answer["routes"]], answer["more"]) == (["a.example"], 2)


async def test_routes_say_why_their_files_are_not_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "transport"
    file.write_text("example.org\n")
    maps = f'[route_maps]\nroutes = ["{file}"]\n'
    monkeypatch.setattr(running_module, "CONFIGURATION", running_module.CONFIGURATION + maps)
    async with open_control(manager=False) as running, running.client() as control:
        answer = await control.call("routes")
        fault = f"{file}:1: 'example.org' must have a route behind it"
        assert [each[: len(fault)] for each in answer["faults"]] == [fault]
        assert (answer["routes"], answer["default"], answer["fallbacks"]) == ([], None, [])
        file.write_text("example.org relay:[192.0.2.9]\n")
        await eventually(lambda: running.server.routes.in_force)
        answer = await control.call("routes")
        assert (answer["faults"], answer["default"]["pattern"]) == ([], "*")
        file.write_text("\nexample.net\n")
        await eventually(lambda: running.server.routes.faults)
        answer = await control.call("routes")
        assert answer["faults"][0].startswith(f"{file}:2: 'example.net' must have a route behind it")
        assert [each["pattern"] for each in (*answer["routes"], answer["default"])] == ["example.org", "*"]


async def test_fallback_next_hops_say_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fallback"
    file.write_text("# customers\nsmtp:.b.example none\nsmtp:a.example [192.0.2.9], Backup.example\n")
    maps = f"""
[transports.smtp]
fallback_relay = ["[192.0.2.8]"]
[route_maps]
fallback_relay = ["{file}"]
"""
    monkeypatch.setattr(running_module, "CONFIGURATION", running_module.CONFIGURATION + maps)
    async with open_control(manager=False) as running, running.client() as control:
        answer = await control.call("routes")
        assert answer["fallbacks"] == [
            {"scope": "smtp", "next_hops": ["[192.0.2.8]"], "line": None, "file": ""},
            {"scope": "smtp:.b.example", "next_hops": [], "line": 2, "file": str(file)},
            {"scope": "smtp:a.example", "next_hops": ["[192.0.2.9]", "backup.example"], "line": 3, "file": str(file)},
        ]
        assert (answer["more_fallbacks"], answer["routes"]) == (0, [])

        async def decided(domain: str) -> tuple[list[str], str, str]:
            found = await control.call("resolve", {"address": f"a@{domain}"})
            return found["fallbacks"], found["fallback_scope"], found["fallback_written"]

        assert await decided("a.example") == (["[192.0.2.9]", "backup.example"], "smtp:a.example", f"{file}:3")
        assert await decided("x.b.example") == ([], "smtp:.b.example", f"{file}:2")
        assert await decided("b.example") == (["[192.0.2.8]"], "smtp", "[transports.smtp]")
        assert await decided("[192.0.2.8]") == ([], "smtp", "[transports.smtp]"), "it is the fallback itself"
        file.write_text("smtp [192.0.2.10]\n")
        await eventually(lambda: running.server.routes.tables.fallbacks["smtp"] == ("[192.0.2.10]",))
        assert await decided("x.b.example") == (["[192.0.2.10]"], "smtp", f"{file}:1")
        monkeypatch.setattr(tables, "ROUTES_SHOWN_MAX", 0)
        assert (await control.call("routes"))["more_fallbacks"] == 1
