"""Settings that are changed by control: an address that no receiver could listen on is a fault at its field, and a change is in
the history or not made at all.

law: managed-is-a-layer.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.managed import HISTORY
from mailcore.control import address_faults
from mailcore.control.async_client import AsyncControlClient
from mailcore.control.client import ControlError
from mailcore.control.protocol.settings import SettingsChanged, SettingsHistory, SettingsKnown
from mailcore.faults import Code
from mailcore.supervisor.child import SETTINGS_NAME, store_settings
from mailcore.supervisor.fresh_addresses import SOCKETS_GIVEN
from tests.control.running_control import RunningControl

NOT_HERE = "192.0.2.1:2525"  # RFC 5737: no host has it


@pytest.fixture
def home(running: RunningControl) -> Path:
    store_settings(running.settings, running.settings.run_directory / SETTINGS_NAME)
    return running.settings.home


async def changed(control: AsyncControlClient, key: list[str], value: Any, *, check: bool = False) -> SettingsChanged:
    state = await control.ask("settings", SettingsKnown)
    arguments = {"changes": [{"key": key, "value": value}], "revision": state.revision, "check": check}
    return await control.ask("settings_change", SettingsChanged, arguments)


def faults(answer: SettingsChanged) -> list[tuple[str, str]]:
    return [(each.key, each.reason) for each in answer.faults]


async def test_an_address_that_this_host_does_not_have_is_a_fault_at_its_field(
    running: RunningControl, control: AsyncControlClient, home: Path
) -> None:
    for check in (True, False):
        answer = await changed(control, ["listener"], [{"address": NOT_HERE}], check=check)
        assert faults(answer) == [("listener.0.address", f"{NOT_HERE} is not an address of this host")]
    known = running.settings.receiver.listen
    answer = await changed(control, ["receiver", "listen"], [*known, NOT_HERE])
    assert [key for key, _ in faults(answer)] == [f"receiver.listen.{len(known)}"]
    assert not (home / "managed.toml").exists()


async def test_a_port_of_another_process_is_a_fault_at_its_field(
    control: AsyncControlClient, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_faults, "WAIT_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        answer = await changed(control, ["listener"], [{"address": address}])
        assert faults(answer) == [("listener.0.address", f"{address} is in use by another process")]
    assert not (home / "managed.toml").exists()
    assert (await changed(control, ["listener"], [{"address": address}])).applied


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        (["listener"], [{"address": "127.0.0.1:29999"}], "listener.0.address"),
        (["receiver", "listen"], ["127.0.0.1:29999"], "receiver.listen.0"),
    ],
)
async def test_where_systemd_has_the_sockets_another_address_is_a_fault(
    running: RunningControl, control: AsyncControlClient, home: Path, key: list[str], value: Any, place: str
) -> None:
    told = {"supervisor": {"pid": 1, "started_at": 0.0, "restarts": 0, SOCKETS_GIVEN: True}}
    (running.settings.run_directory / "children.json").write_text(json.dumps(told))
    answer = await changed(control, key, value)
    assert [key for key, _ in faults(answer)] == [place]
    assert "systemd has the sockets" in answer.faults[0].reason
    assert not (home / "managed.toml").exists()
    assert (await changed(control, ["relay", "domains"], ["mine.example"])).applied


@pytest.mark.parametrize("name", ["reserve_bytes", "ballast_bytes", "reserve_inodes"])
async def test_more_free_space_than_the_disk_has_is_a_fault_at_its_field(
    control: AsyncControlClient, home: Path, name: str
) -> None:
    answer = await changed(control, ["queue", name], 1 << 40)
    assert [key for key, _ in faults(answer)] == [f"queue.{name}"]
    assert "all new mail would be refused" in answer.faults[0].reason
    assert not (home / "managed.toml").exists()
    assert (await changed(control, ["queue", "reserve_bytes"], 1)).applied


async def test_a_change_that_the_history_cannot_take_is_not_made(control: AsyncControlClient, home: Path) -> None:
    managed, history = home / "managed.toml", home / HISTORY
    history.mkdir()  # so that no file can be opened there
    with pytest.raises(ControlError, match="nothing was changed") as refused:
        await changed(control, ["relay", "domains"], ["first.example"])
    assert refused.value.code is Code.INTERNAL
    assert not managed.exists()
    history.rmdir()
    await changed(control, ["relay", "domains"], ["first.example"])
    before = managed.read_text()
    history.rename(home / "states")
    history.mkdir()
    with pytest.raises(ControlError, match="nothing was changed"):
        await changed(control, ["relay", "domains"], ["second.example"])
    assert managed.read_text() == before


async def test_a_line_that_a_kill_cut_costs_no_other_state(control: AsyncControlClient, home: Path) -> None:
    (home / HISTORY).write_bytes(b'{"revision": "0123456789abcdef", "at": 1.0, "who": "a')
    made = await changed(control, ["relay", "domains"], ["first.example"])
    found = await control.ask("settings_history", SettingsHistory, {"limit": 10})
    assert [each.revision for each in found.states] == [made.revision]
    assert len(found.faults) == 1


async def test_of_two_files_the_one_that_is_not_toml_is_named(control: AsyncControlClient, home: Path) -> None:
    (home / "managed.toml").write_text("[relay\n")
    with pytest.raises(ControlError, match=f"^{home}/managed.toml: Expected"):
        await control.ask("settings", SettingsKnown)
