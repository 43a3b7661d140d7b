"""Domains of aliases: mail for an alias is accepted, and other recipients are refused at RCPT, as Postfix does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import said_of, told_of
from tests.receiver.configured_receiver import configured

ALIASES = "shop.example anything\nsales@shop.example kim@elsewhere.example\n"
OURS = "127.0.0.7"
UNKNOWN = "error:5.1.1 User unknown in virtual alias table"


@pytest.mark.parametrize("given", ["virtual_alias_domains = shop.example\n", ""])
async def test_aliases_of_the_domain_are_valid_and_no_others(tmp_path: Path, given: str) -> None:
    main = f"virtual_alias_maps = hash:DIR/virtual\n{given}relay_domains = own.example\nmynetworks = {OURS}\n"
    draft, settings = told_of(tmp_path, main, virtual=ALIASES)
    assert settings.relay.domains == ("own.example", ".own.example", "shop.example")
    assert settings.routes["shop.example"] == UNKNOWN
    (finding,) = said_of(draft, "virtual_alias_domains")
    assert finding.fate is Fate.CHANGED
    assert "get 250 for such recipients, and then a bounce with this text; in Postfix they get 550" in finding.said
    assert "rewrites no addresses" not in "".join(each.said for each in draft.findings)
    home = tmp_path / "x"
    home.mkdir()
    text = (tmp_path / "waypost.toml").read_text().replace('home = "home"', 'home = "."')
    async with configured(home, text + "[queue]\nreserve_bytes = 0\n", head="") as server:
        found = await server.replies("sales@shop.example", "other@shop.example", "any@own.example")
        ours = await server.codes("other@shop.example", source=OURS)
    assert [each[:9] for each in found] == ["250 2.1.5", "550 5.1.1", "250 2.1.5"]
    assert "User unknown in virtual alias table" in found[1]
    assert ours == ["250 2.1.5"], "the finding says so"


def test_a_list_of_recipients_of_other_domains_stays_theirs(tmp_path: Path) -> None:
    main = (
        "virtual_alias_maps = hash:DIR/virtual\nrelay_domains = own.example\nrelay_recipient_maps = hash:DIR/valid\n"
        "transport_maps = hash:DIR/transport\n"
    )
    tables = {
        "virtual": "shop.example x\na@shop.example b@x.example\nrouted.example x\na@routed.example b@x.example\n",
        "valid": "kim@own.example OK\n",
        "transport": "routed.example smtp:[192.0.2.1]\n",
    }
    draft, settings = told_of(tmp_path, main, **tables)
    assert settings.recipients.known_by == "file"
    assert settings.recipients.next_hop_domains == ("shop.example",)
    assert settings.routes["routed.example"] == "smtp:[192.0.2.1]"
    assert "transport_maps has a route for routed.example" in said_of(draft, "virtual_alias_domains")[0].said


def test_without_all_aliases_the_domain_is_refused_and_the_report_says_so(tmp_path: Path) -> None:
    main = "virtual_alias_domains = shop.example\nvirtual_alias_maps = hash:DIR/virtual, ldap:DIR/ldap\n"
    draft, settings = told_of(tmp_path, main, virtual=ALIASES)
    assert settings.relay.domains == ()
    (finding,) = said_of(draft, "virtual_alias_domains")
    assert finding.fate is Fate.LEFT
    assert finding.said.startswith("not all of virtual_alias_maps was taken over, so mail for shop.example is refused")


def test_a_file_of_patterns_is_said_to_be_one_thing(tmp_path: Path) -> None:
    main = "virtual_alias_maps = pcre:DIR/virtual.pcre\n"
    draft, _ = told_of(tmp_path, main, **{"virtual.pcre": "/^list-(.*)@example[.]org$/ $1@lists.example.org\n"})
    said = [(each.fate, each.said) for each in draft.findings if "virtual.pcre" in each.what]
    assert (Fate.TAKEN, "[rewriting] virtual_alias_maps") in said
    assert not any("are not taken over" in text for _, text in said)
    assert {fate for fate, _ in said} == {Fate.TAKEN, Fate.CHANGED}
