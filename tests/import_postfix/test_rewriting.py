"""Aliases, canonical addresses and copies of Postfix become [rewriting]."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.maps import map_faults
from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of


def test_files_with_whole_addresses_are_used_where_they_are(tmp_path: Path) -> None:
    main = """virtual_alias_maps = hash:DIR/virtual, regexp:DIR/rules, ldap:DIR/ldap
canonical_maps = hash:DIR/canonical
recipient_bcc_maps = texthash:DIR/copies
always_bcc = archive@example.org
recipient_delimiter = +
"""
    files = {
        "virtual": "team@example.org a@example.org, b@example.net\n@old.example @example.org\n",
        "rules": "/^list-(.*)@example[.]org$/ $1@lists.example.org\n",
        "canonical": "kim@example.org kim.smith@example.org\nroot postmaster@example.org\n",
        "copies": "boss@example.org audit@example.org\n",
    }
    draft, settings = told_of(tmp_path, main, **files)
    etc = tmp_path / "etc"
    rewriting = settings.rewriting
    assert rewriting.virtual_alias_maps == (f"{etc}/virtual", f"regexp:{etc}/rules")
    assert rewriting.recipient_bcc_maps == (f"{etc}/copies",)
    assert (rewriting.always_bcc, rewriting.recipient_delimiter) == ("archive@example.org", "+")
    assert map_faults(rewriting) == []
    (finding,) = said_of(draft, "canonical_maps")
    assert finding.fate is Fate.LEFT
    assert "canonical:2: 'root' is neither an address nor @domain" in finding.said
    assert rewriting.canonical_maps == ()
    ldap = said_of(draft, "virtual_alias_maps = ldap")
    assert [(each.fate, "type ldap" in each.said) for each in ldap] == [(Fate.LEFT, True)]


def test_the_header_fields_that_are_dropped_are_taken_over(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, "message_drop_headers = Bcc, x-secret, bcc, b@d:\n")
    assert settings.receiver.message_drop_headers == ("bcc", "x-secret")
    assert [each.fate for each in said_of(draft, "message_drop_headers = b@d:")] == [Fate.LEFT]
    (tmp_path / "other").mkdir()
    _, settings = told_of(tmp_path / "other", "message_drop_headers =\n")
    assert settings.receiver.message_drop_headers == ()


def test_missing_fields_for_all_clients_are_taken_over(tmp_path: Path) -> None:
    main = "local_header_rewrite_clients = permit_sasl_authenticated\nalways_add_missing_headers = "
    for value in ("yes", "no"):
        (tmp_path / value).mkdir()
        draft, settings = told_of(tmp_path / value, f"{main}{value}\n")
        assert settings.rewriting.always_add_missing_headers is (value == "yes")
        assert settings.rewriting.local_header_rewrite_clients == ("logins",)
        (finding,) = said_of(draft, "always_add_missing_headers")
        assert finding.fate is Fate.TAKEN
