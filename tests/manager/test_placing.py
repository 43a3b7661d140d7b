"""A recipient that was deferred waits before it is tried again, also if others of the message are held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from mailcore.envelope import Recipient
from mailcore.manager.context import ManagerContext
from mailcore.manager.placing import Placing
from mailcore.queue.active import Active
from mailcore.queue.aside import is_due
from tests.lookup.sample_messages import NOW, envelope


@pytest.mark.parametrize("interval_s", [1, 5, 300])
def test_what_was_just_deferred_is_not_due(interval_s: int) -> None:
    context = SimpleNamespace(wall=lambda: NOW)
    active = SimpleNamespace(
        orders=(), deferred={0: ("", "later", "4.2.0", 0)}, envelope=envelope(), lane="incoming.0", rested_until=0.0,
        age_s=0.0,
    )  # fmt: skip
    placing = Placing(cast(ManagerContext, context), cast(Active, active), interval_s)
    aside = placing.now(Recipient(0, "a@example.org")).aside
    assert aside is not None
    assert not is_due(aside, NOW)
    assert is_due(aside, NOW + interval_s)
