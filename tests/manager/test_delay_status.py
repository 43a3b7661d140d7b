"""The status in a delay warning of a recipient that was not tried in the pass: that of the reply that deferred it last."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mailcore.envelope import Aside, AsideKind, Recipient
from mailcore.manager import notices
from mailcore.remote_reply import refused_to_talk, said, suspended

HOST = "mx.example.org[192.0.2.1]"


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (said(HOST, "451 4.7.1 Greylisted", "RCPT TO"), "4.7.1"),
        (suspended(refused_to_talk(HOST, "421 4.7.0 busy")), "4.7.0"),
        (said(HOST, "450 no code", "RCPT TO"), ""),
        ("connect to mx.example.org[192.0.2.1]:25: Connection refused", ""),
    ],
)
def test_a_recipient_that_was_not_tried_keeps_its_status(
    monkeypatch: pytest.MonkeyPatch, reply: str, status: str
) -> None:
    tried = Recipient(0, "tried@example.org", reply="450 4.2.0 before")
    waits = Recipient(1, "waits@example.org", reply=reply, aside=Aside(AsideKind.DEFERRED))
    context = SimpleNamespace(
        settings=SimpleNamespace(bounce=SimpleNamespace(delay_warning_time=60)), age_s=lambda active: 90.0, queue=None
    )
    active = SimpleNamespace(
        envelope=SimpleNamespace(options=(), delay_warned=False),
        orders=(),
        owed=(),
        age_s=90.0,
        deferred={0: ("smtp:example.org", "450 4.2.1 now", "4.2.1", 1_700_000_000)},
    )
    monkeypatch.setattr(notices, "remaining_recipients", lambda queue, active: [tried, waits])
    found = notices.outcomes_of(cast(Any, context), cast(Any, active), stays=True)
    assert [(recipient.number, verdict.dsn, verdict.reply) for recipient, verdict in found] == [
        (0, "4.2.1", "450 4.2.1 now"),
        (1, status, reply),
    ]
