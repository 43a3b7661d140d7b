"""A connection that is kept serves mail with REQUIRETLS only if its server offers that."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.delivery import FixedHosts, outcomes
from tests.deliverer.scripted_server import serving
from tests.deliverer.test_require_tls import CLEAR, required, sender_of, server_of


@pytest.mark.parametrize("before", ["", "from@example.net"])
async def test_another_host_is_asked(tmp_path: Path, before: str) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("mx.example.org")
    async with (
        serving(server_of(issued, tmp_path, CLEAR)) as first,
        serving(server_of(issued, tmp_path), "127.0.0.2", first.port),
    ):
        sender = sender_of(tmp_path, first.port, authority, "verify", FixedHosts("127.0.0.1", "127.0.0.2"))
        options = () if before else (("REQUIRETLS", ""),)
        await sender.deliver(msgspec.structs.replace(sender.work(), options=options, sender=before))
        found = await required(sender)
        sender.close()
    assert outcomes(found) == [("delivered", "2.0.0")]
