"""Milters of Postfix: their addresses, time-outs and default actions."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.milters import Milter
from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of

MAIN = """
smtpd_milters = inet:localhost:8891, { inet:127.0.0.1:11332, connect_timeout=10s, default_action=accept }
    unix:opendmarc/opendmarc.sock local:/run/clamav/milter.sock { inet:[::1]:7777, command_timeout=1m, protocol=4 }
    inet:localhost:nosuchservice tcp:localhost:1
milter_default_action = shutdown
milter_content_timeout = 5m
milter_connect_macros = j
non_smtpd_milters = inet:localhost:8891
"""


def test_milters_are_taken_over_with_their_settings(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, MAIN)
    dmarc = "unix:/var/spool/postfix/opendmarc/opendmarc.sock"
    assert settings.receiver.milters == (
        "inet:localhost:8891",
        "inet:127.0.0.1:11332",
        dmarc,
        "unix:/run/clamav/milter.sock",
        "inet:[::1]:7777",
    )
    assert {each.address: each for each in settings.milter} == {
        "inet:localhost:8891": Milter(address="inet:localhost:8891"),
        "inet:127.0.0.1:11332": Milter(address="inet:127.0.0.1:11332", connect_timeout_s=10, default_action="accept"),
        dmarc: Milter(address=dmarc),
        "unix:/run/clamav/milter.sock": Milter(address="unix:/run/clamav/milter.sock"),
        "inet:[::1]:7777": Milter(address="inet:[::1]:7777", command_timeout_s=60),
    }
    fates = [each.fate for each in said_of(draft, "smtpd_milters")]
    assert fates == [Fate.TAKEN, Fate.TAKEN, Fate.TAKEN, Fate.CHANGED, Fate.CHANGED, Fate.LEFT, Fate.LEFT]
    assert "chrooted" in said_of(draft, "smtpd_milters = local:")[0].said
    assert "without protocol" in said_of(draft, "smtpd_milters = { inet:[")[0].said
    (action,) = said_of(draft, "milter_default_action")
    assert (action.fate, "tempfail" in action.said) == (Fate.CHANGED, True)
    assert [each.fate for each in said_of(draft, "milter_content_timeout")] == [Fate.TAKEN]
    assert [each.fate for each in said_of(draft, "milter_connect_macros")] == [Fate.LEFT]
    assert [each.fate for each in said_of(draft, "non_smtpd_milters")] == [Fate.TAKEN]
    assert settings.receiver.non_smtpd_milters == ("inet:localhost:8891",)


def test_settings_of_milters_without_milters(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, "smtpd_milters =\nmilter_default_action = accept\nmilter_command_timeout = x\n")
    assert settings.receiver.milters == ()
    assert settings.milter == ()
    assert [each.fate for each in said_of(draft, "milter_")] == [Fate.TAKEN, Fate.LEFT]
