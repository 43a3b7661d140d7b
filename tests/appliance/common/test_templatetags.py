"""How times and strangers' text are shown."""

from __future__ import annotations

import time
from zoneinfo import ZoneInfo

from django.utils import timezone

from appliance.common.templatetags.waypost import due, sentence, shown


def test_what_is_to_come_is_due_now_when_its_time_is_over() -> None:
    assert ">now<" in due(time.time() - 3)
    assert ">in 5 min" in due(time.time() + 301)
    assert due(None) == due(0) == "–"


def test_times_in_the_cores_sentences_are_in_the_readers_zone() -> None:
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        said = sentence("the next try is due at 2026-01-31 20:50:06+00:00; last: <b>450\x1b[2J")
    assert 'datetime="2026-01-31T20:50:06+00:00"' in said
    assert ">2026-02-01 05:50</time>; last: &lt;b&gt;450\\x1b[2J</bdi>" in said
    wrong = "said: 2026-19-39 29:59:59+00:00 ago"
    assert sentence(wrong) == shown(wrong)
