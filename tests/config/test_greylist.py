"""[greylist]: times in which no retry can pass are refused, keys without effect are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.greylist import Greylist, greylist_warnings
from mailcore.config.load import ConfigError, load_text

HEAD = "[greylist]\nenabled = true\n"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("delay_s = 400\nretry_window_s = 700", ":4: [greylist] retry_window_s does not fit"),
        ("delay_s = 3600\nretry_window_s = 7199", ":4: [greylist] retry_window_s does not fit"),
        ("delay_s = 7200\nlifetime_s = 3600", ":4: [greylist] lifetime_s does not fit"),
        ('recipients_exempt = ["*"]', '.example.org" for all its subdomains (got'),
    ],
)
def test_what_lets_no_mail_pass_or_exempts_nothing_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(tmp_path / "waypost.toml", HEAD + text)
    assert fault in str(raised.value)


def test_a_window_of_two_delays_is_enough(tmp_path: Path) -> None:
    assert load_text(tmp_path / "waypost.toml", HEAD + "retry_window_s = 600").greylist.retry_window_s == 600


def test_keys_without_effect_are_named() -> None:
    assert list(greylist_warnings(Greylist())) == []
    assert list(greylist_warnings(Greylist(delay_s=60))) == ["[greylist] delay_s has no effect without enabled = true"]
    assert list(greylist_warnings(Greylist(enabled=True, delay_s=60))) == []
