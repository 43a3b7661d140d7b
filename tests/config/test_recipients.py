"""[recipients]: keys that contradict each other are refused, keys without effect are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.load import ConfigError, load_text
from mailcore.config.maps import recipient_faults
from mailcore.config.recipients import domain_pattern_of, warnings_about
from mailcore.config.settings import Settings

HEAD = '[relay]\ndomains = ["example.org", ".wide.example"]\n[recipients]\n'


def loaded(directory: Path, text: str) -> Settings:
    return load_text(directory / "waypost.toml", HEAD + text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('known_by = "file"', "known_by needs relay_recipient_maps; without a file, all recipients would be refused"),
        ('file_domains = ["example.org"]', "file_domains needs relay_recipient_maps"),
        (
            'relay_recipient_maps = ["x"]\nfile_domains = ["example.org"]\nany_domains = ["example.org"]',
            "any_domains must not have 'example.org', which is in file_domains already",
        ),
        ('known_by = "ldap"', 'known_by must be "any", "file" or "next_hop"'),
        ('any_domains = ["*"]', "must be a domain"),
        (
            'relay_recipient_maps = ["hash:/etc/postfix/relay_recipients"]',
            "relay_recipient_maps must be the path of a text file: write '/etc/postfix/relay_recipients', the source that "
            "postmap reads (got 'hash:/etc/postfix/relay_recipients')",
        ),
        ('relay_recipient_maps = ["proxy:lmdb:/x"]', "write '/x', the source that postmap reads"),
        ('relay_recipient_maps = ["ldap:/x"]', "write the entries of this table to a file, and name that file"),
        (
            'relay_recipient_maps = ["regexp:/x"]',
            "must be the path of a file with addresses; patterns are not read here",
        ),
        ('relay_recipient_maps = [""]', "must be the path of a file"),
        ('[rewriting]\nvirtual_alias_maps = ["hash:/x"]', "write '/x', the source that postmap reads"),
        ('[rewriting]\nvirtual_alias_maps = ["pcre:/x"]', "write 'regexp:/x' for a file of patterns"),
        ('[rewriting]\nvirtual_alias_maps = ["regexp:"]', "must be the path of a file"),
        ('[rewriting]\nheader_checks = ["regexp:/x"]', "must be the path of a text file: write '/x', without the type"),
    ],
)
def test_a_contradiction_is_a_fault(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, text)
    assert fault in str(raised.value)


def test_a_path_is_relative_to_the_file(tmp_path: Path) -> None:
    settings = loaded(tmp_path, 'known_by = "file"\nrelay_recipient_maps = ["valid", "/etc/valid"]')
    assert settings.recipients.relay_recipient_maps == (f"{tmp_path}/valid", "/etc/valid")


def test_check_config_names_files_that_cannot_be_used(tmp_path: Path) -> None:
    settings = loaded(tmp_path, 'known_by = "file"\nrelay_recipient_maps = ["valid"]')
    assert "cannot be read" in recipient_faults(settings)[0]
    (tmp_path / "valid").write_text("")
    assert "no address is in it; all recipients would be refused" in recipient_faults(settings)[0]
    (tmp_path / "valid").write_text("kim@example.org\n")
    assert recipient_faults(settings) == []


def test_check_config_names_keys_without_effect(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        'relay_recipient_maps = ["x"]\nany_domains = ["a.wide.example", ".b.wide.example", "other.example", "example.org"]',
    )
    said = list(warnings_about(settings.recipients, settings.relay.domains))
    assert [each[:40] for each in said] == [
        "[recipients] any_domains has other.examp",
        "[recipients] relay_recipient_maps is not",
    ]


@pytest.mark.parametrize(
    ("domain", "pattern"),
    [
        ("a.example", "a.example"),
        ("x.a.example", ".a.example"),
        ("y.x.a.example", ".x.a.example"),
        ("b.example", ""),
        ("xa.example", ""),
    ],
)
def test_the_most_specific_pattern_counts(domain: str, pattern: str) -> None:
    assert domain_pattern_of(domain, ["a.example", ".a.example", ".x.a.example"]) == pattern
