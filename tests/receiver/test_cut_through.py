"""Cut-through at the receiver: what its client hears when the manager's answer comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mailcore.frames import Fate
from mailcore.receiver import reception
from mailcore.receiver.cut_through import CutThrough
from tests.receiver.running_receiver import Running, receiving
from tests.receiver.test_reception import send


class AnswersAtOnce(CutThrough):
    """Stands for a manager that answers each offer with ``fate``."""

    def __init__(self, running: Running, fate: Fate) -> None:
        super().__init__(running.receiving.link)
        self._loop = running.receiving.reception._loop
        self._fate = fate

    def takes(self, *message: Any) -> bool:
        return True

    def offer(self, envelope: Any, data: bytes, answered: Any) -> None:
        self._loop.call_soon(answered, self._fate, "250 2.0.0 Ok: as \r\n\x07one")


async def test_a_refused_offer_is_stored(tmp_path: Path) -> None:
    async with receiving(tmp_path) as running:
        running.receiving.reception.cut_through = AnswersAtOnce(running, Fate.REFUSED)
        assert (await send(await running.ready())).startswith(b"250 2.0.0 Ok: queued as ")
        assert len(running.lane.messages) == 1


async def test_what_was_passed_on_or_may_have_been_is_not_stored(tmp_path: Path) -> None:
    async with receiving(tmp_path) as running:
        running.receiving.reception.cut_through = AnswersAtOnce(running, Fate.PASSED_ON)
        reply = await send(await running.ready())
        assert reply.startswith(b"250 2.0.0 Ok: passed on as ")
        assert reply.endswith(b"250 2.0.0 Ok: as ???one\r\n")
        running.receiving.reception.cut_through = AnswersAtOnce(running, Fate.UNCERTAIN)
        assert (await send(await running.ready())).startswith(b"421 4.4.2 ")
        assert running.lane.messages == []


async def test_a_client_hears_of_an_error_behind_its_offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client waits for a reply, and only its own session can send one."""

    def broken(*_: object) -> None:
        raise ValueError("a bug of ours")

    async with receiving(tmp_path) as running:
        running.receiving.reception.cut_through = AnswersAtOnce(running, Fate.REFUSED)
        client = await running.ready()
        with monkeypatch.context() as patched:
            patched.setattr(reception, "append_envelope", broken)
            assert (await send(client)).startswith(b"451 4.3.0 ")
        assert (await send(client)).startswith(b"250 2.0.0 Ok: queued as ")
