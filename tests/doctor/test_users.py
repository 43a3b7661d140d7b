"""The doctor over an appliance whose receivers and deliverers have users of their own; and asked by nobody's user."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from mailcore.config.load import load
from mailcore.doctor import limits, permissions, ports
from mailcore.doctor.finding import Finding, State
from mailcore.doctor.host import Host
from mailcore.faults import Code
from tests.doctor.sample_host import found, states
from tests.end_to_end.appliance import COMMAND
from tests.supervisor.test_users import CORE, OwnUsers, as_root, entered


@pytest.fixture
async def core(place: Path) -> AsyncIterator[OwnUsers]:
    it = OwnUsers(place, {"*": "smtp:[127.0.0.1]:9"}, {"queue": {"reserve_bytes": 0}})
    await it.start()
    yield it
    await it.control.close()
    it.stop()


@as_root
async def test_own_users_are_as_they_should_be(core: OwnUsers) -> None:
    settings = load(core.config)
    sample_host = await asyncio.to_thread(Host.of, settings, core.config)
    told_of_files = list(permissions.look(sample_host))
    assert states(told_of_files) == {State.GOOD}, told_of_files
    assert CORE in found(told_of_files, "queue").found
    told = list(ports.look(sample_host))
    assert found(told, "(SMTP)").state is State.GOOD
    assert states(limits.look(sample_host)) == {State.GOOD}
    assert found(told_of_files, "lanes").state is State.GOOD
    (settings.queue_directory / "journal").chmod(0o777)
    settings.home.chmod(0o777)
    assert found(permissions.look(sample_host), "home").state is State.BAD
    assert str(settings.queue_directory / "journal") in found(permissions.look(sample_host), "lanes").found


@as_root
async def test_who_may_see_little_is_told_so(core: OwnUsers) -> None:
    """Nobody's user: no check breaks, and what it may not see is not known."""
    asked = [str(COMMAND), "doctor", "--json", "--config", str(core.config)]
    command = entered(core.directory, ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *asked])
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=100, check=False)
    findings = msgspec.convert(json.loads(done.stdout)["findings"], list[Finding])
    assert [each.found for each in findings if "this check failed" in each.found] == []
    assert found(findings, "(SMTP)").state is State.GOOD, "it greets everybody"
    unseen = {each.subject: each.remedy for each in findings if "has no permission to read it" in each.found}
    assert {"disk", "lag"} <= unseen.keys()
    assert all("root" in remedy for remedy in unseen.values())
    assert found(findings, "control socket").figures["code"] == Code.FORBIDDEN
    worse = {f"{each.subject} {each.what}" for each in findings if each.state is State.BAD}
    assert worse == {"processes control socket"}
