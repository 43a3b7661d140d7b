"""A TLS policy that no mail reaches looks as if mail were encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.load import load
from mailcore.config.policies_without_mail import policies_without_mail

SMARTHOST = '"*" = "smtp:[192.0.2.1]:587"\n'


@pytest.mark.parametrize(
    ("routes", "pattern", "without"),
    [
        ("", "example.org", False),
        (SMARTHOST, "example.org", True),
        (SMARTHOST, ".example.org", True),
        (SMARTHOST, "[192.0.2.1]:587", False),
        (SMARTHOST, "[192.0.2.99]", False),
        (SMARTHOST + '"example.org" = "smtp"\n', "example.org", False),
        (SMARTHOST + '"user@example.org" = "smtp"\n', "example.org", False),
        (SMARTHOST + '"a.example.org" = "smtp"\n', ".example.org", False),
        (SMARTHOST + '".example.org" = "smtp"\n', ".example.org", False),
        (SMARTHOST + '"example.net" = "smtp:example.org"\n', "example.org", False),
        (SMARTHOST + '"example.net" = "smtp:example.org:26"\n', "example.org:26", False),
        ('"example.org" = "smtp:relay.example.net"\n', "example.org", True),
        ('"example.org" = "smtp:relay.example.net"\n', "relay.example.net", False),
        ('"example.org" = "smtp:relay.example.net"\n', ".example.org", False),
    ],
)
def test_a_policy_that_no_mail_reaches_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], routes: str, pattern: str, without: bool
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'home = "home"\n[tls_policy."{pattern}"]\nlevel = "encrypt"\n[routes]\n{routes}')
    assert [found for found, _ in policies_without_mail(load(config))] == [pattern] * without
    assert main(["check-config", "--config", str(config)]) == 0
    assert ("has no effect" in capsys.readouterr().err) is without
