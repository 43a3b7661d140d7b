"""Postfix's relay_recipient_maps become [recipients], as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from mailcore.config.maps import recipient_faults
from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of

RELAY = "relay_domains = example.org\n"


def test_the_file_is_used_where_it_is(tmp_path: Path) -> None:
    main = RELAY + "relay_recipient_maps = hash:DIR/valid, proxy:texthash:DIR/more\n"
    draft, settings = told_of(tmp_path, main, valid="kim@example.org OK\n", more="@sub.example.org x\n")
    assert settings.recipients.known_by == "file"
    assert settings.recipients.relay_recipient_maps == (f"{tmp_path}/etc/valid", f"{tmp_path}/etc/more")
    assert recipient_faults(settings) == []
    (finding,) = said_of(draft, "relay_recipient_maps")
    assert finding.fate is Fate.TAKEN


def test_a_part_of_the_list_is_not_taken_over(tmp_path: Path) -> None:
    """It would refuse the recipients of the other part."""
    for value, fault in (
        ("hash:DIR/valid, ldap:DIR/x", "type ldap"),
        ("hash:DIR/valid hash:DIR/bad", "'kim' is neither"),
        ("lmdb:DIR/gone", "does not exist; postmap -s lmdb:"),
        ("proxy:mysql:DIR/x", "write the addresses of proxy:mysql:"),
    ):
        directory = tmp_path / str(len(fault))
        directory.mkdir()
        main = RELAY + f"relay_recipient_maps = {value}\n"
        draft, settings = told_of(directory, main, valid="kim@example.org OK\n", bad="kim OK\n")
        assert not settings.recipients.is_on
        (finding,) = said_of(draft, "relay_recipient_maps")
        assert finding.fate is Fate.LEFT
        assert fault in finding.said
        assert "bounces may go to forged senders, until [recipients] relay_recipient_maps names a file" in finding.said


def test_a_host_that_asked_the_next_hop_still_does(tmp_path: Path) -> None:
    main = RELAY + (
        "smtpd_recipient_restrictions = permit_mynetworks reject_unauth_destination reject_unverified_recipient\n"
        "address_verify_negative_refresh_time = 1h\n"
    )
    draft, settings = told_of(tmp_path, main)
    assert settings.recipients.known_by == "next_hop"
    assert settings.recipients.address_verify_negative_refresh_time_s == 3600
    assert next(each.fate for each in said_of(draft, "reject_unverified_recipient")) is Fate.CHANGED
    directory = tmp_path / "both"
    directory.mkdir()
    draft, settings = told_of(directory, main + "relay_recipient_maps = hash:DIR/valid\n", valid="kim@example.org x\n")
    assert settings.recipients.known_by == "file"
    assert any(each.fate is Fate.LEFT for each in said_of(draft, "reject_unverified_recipient"))
    directory = tmp_path / "not-readable"
    directory.mkdir()
    draft, settings = told_of(directory, main + "relay_recipient_maps = ldap:DIR/x\n")
    assert settings.recipients.known_by == "next_hop"
    (finding,) = said_of(draft, "relay_recipient_maps")
    assert "the next hop is asked" in finding.said
