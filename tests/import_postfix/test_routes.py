"""Routes beside each other: transport_maps go before relayhost, default_transport and relay_transport, and that is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.import_postfix.draft import Fate
from tests.import_postfix.translating import route_of, said_of, told_of

RELAYED = """relayhost = [smtp.provider.example]:587
default_transport = smtp
relay_domains = example.net, own.example
relay_transport = relay
"""


def test_transports_that_deliver_nothing_become_routes_and_lmtp_becomes_a_transport(tmp_path: Path) -> None:
    lines = """refused.example error:5.1.1 Nobody here
trap.example discard:
late.example retry:4.3.0 Later
wrong.example error:4.3.0 Later
store.example lmtp:unix:private/dovecot-lmtp
tcp.example lmtp:inet:store.example.net:2424
hosts.example lmtp:[store.example.net]
"""
    draft, settings = told_of(tmp_path, "transport_maps = hash:DIR/transport\n", transport=lines)
    assert settings.routes == {
        "refused.example": "error:5.1.1 Nobody here",
        "trap.example": "discard",
        "late.example": "retry:4.3.0 Later",
        "store.example": "lmtp:unix:/var/spool/postfix/private/dovecot-lmtp",
        "tcp.example": "lmtp:store.example.net:2424",
        "hosts.example": "lmtp:[store.example.net]",
        "*": "smtp",
    }
    assert (settings.transports["lmtp"].protocol, settings.transports["lmtp"].tls) == ("lmtp", "none")
    (finding,) = said_of(draft, "wrong.example")
    assert (finding.fate, "begins with 5" in finding.said) == (Fate.LEFT, True)


def test_routes_of_senders_and_fallbacks_are_taken_over(tmp_path: Path) -> None:
    main = """relayhost = [out.example]:25
sender_dependent_relayhost_maps = hash:DIR/relays
sender_dependent_default_transport_maps = hash:DIR/transports
smtp_fallback_relay = [backup.example]:587, other.example
"""
    relays = "@one.example [one.provider.example]:587\nkim@two.example two.provider.example\n<> [bounces.example]\n"
    transports = "@one.example slow:\nboss@two.example error:5.7.1 no\n@three.example maildrop:\n"
    draft, settings = told_of(tmp_path, main, relays=relays, transports=transports)
    assert settings.sender_routes == {
        "one.example": "slow:[one.provider.example]:587",
        "kim@two.example": "smtp:two.provider.example",
        "<>": "smtp:[bounces.example]",
        "boss@two.example": "error:5.7.1 no",
    }
    assert settings.transports["smtp"].fallback_relay == ("[backup.example]:587", "other.example")
    (finding,) = said_of(draft, "@three.example")
    assert (finding.fate, "goes as that of all others" in finding.said) == (Fate.LEFT, True)
    assert [each.fate for each in said_of(draft, "3 lines")] == [Fate.TAKEN, Fate.TAKEN]


def test_fallbacks_of_lmtp_are_those_of_its_own_transports(tmp_path: Path) -> None:
    main = """smtp_fallback_relay = [backup.example], [BACKUP.example]
lmtp_fallback_relay = inet:[store.example]:2424 other.example unix:private/lmtp
"""
    draft, settings = told_of(tmp_path, main)
    assert settings.transports["smtp"].fallback_relay == ("[backup.example]",)
    assert settings.transports["lmtp"].fallback_relay == ("[store.example]:2424", "other.example")
    taken, left = said_of(draft, "lmtp_fallback_relay")
    assert (taken.fate, left.fate) == (Fate.TAKEN, Fate.LEFT)
    assert "left out of fallback_relay of [transports.lmtp]" in left.said
    assert "'unix:private/lmtp': a fallback cannot be a Unix socket. Let its server listen on TCP" in left.said


def test_that_a_relayhost_by_sender_is_not_for_relay_domains_here_is_said(tmp_path: Path) -> None:
    main = """relay_domains = own.example
sender_dependent_relayhost_maps = hash:DIR/relays
sender_dependent_default_transport_maps = hash:DIR/transports
"""
    line = "@one.example [one.provider.example]\n"
    draft, settings = told_of(tmp_path, main, relays=line, transports="@two.example slow:\n")
    assert settings.routes["own.example"] == "relay"
    relayhosts, transports = sorted(said_of(draft, "1 line"), key=lambda each: each.where)
    assert relayhosts.fate is Fate.CHANGED
    assert "mail for [relay] domains goes by their patterns in [routes] first" in relayhosts.said
    assert transports.fate is Fate.TAKEN


def test_a_line_of_transport_maps_for_everything_goes_before_the_relayhost_and_that_is_said(tmp_path: Path) -> None:
    lines = "* slow:[gate.example]\nown.example :\nrefused.example error:no\nuser@own.example maildrop:\n"
    draft, settings = told_of(tmp_path, RELAYED + "transport_maps = hash:DIR/transport\n", transport=lines)
    for address, destination in (
        ("a@anywhere.example", "slow:[gate.example]"),
        ("a@example.net", "slow:[gate.example]"),
        ("user@own.example", "relay:[smtp.provider.example]:587"),
        ("a@own.example", "relay:[smtp.provider.example]:587"),
    ):
        assert route_of(settings, address) == destination
    everything = '[routes] "*" = "slow:[gate.example]"'
    for what, fate, said in (
        ("relayhost", Fate.TAKEN, f'only for "own.example"; {everything}, by transport_maps'),
        ("default_transport", Fate.LEFT, f"transport_maps overrides it, as in Postfix: {everything}"),
        (
            "relay_transport",
            Fate.TAKEN,
            'for own.example; transport_maps overrides it, as in Postfix: [routes] "exam',
        ),
        ("user@own.example", Fate.LEFT, "as that for its domain, relay:[smtp.provider.example]:587, unless"),
    ):
        (found,) = said_of(draft, what)
        assert found.fate is fate
        assert said in found.said


@pytest.mark.parametrize(
    ("main", "transport", "relayhost", "default"),
    [
        ("relayhost = [hop.example]\ndefault_transport = smtp\n", "* slow:", "no mail goes there", "overrides it"),
        (
            "relayhost =\ndefault_transport = smtp\n",
            "* slow:[a.example]",
            "mail goes slow:[a.example]",
            "overrides it",
        ),
        (
            "relayhost = \ndefault_transport = smtp\n",
            "x.example slow:",
            "goes by smtp to its domain's MX",
            '"smtp" for *',
        ),
        (
            "relayhost = [x\ndefault_transport = slow\n",
            "x.example smtp:",
            "goes by slow to its domain's MX",
            '"slow" for *',
        ),
        (
            "relayhost = [hop.example]\ndefault_transport = slow:[b.example]\n",
            "x.example :",
            "by default_transport",
            "for *",
        ),
        ("relayhost = [hop.example]\ndefault_transport = maildrop\n", "* slow:", "no mail", "mail goes by slow to its"),
        (
            "relayhost = [hop.example]\ndefault_transport = slow\n",
            "* :",
            '"*" goes to [hop.example]',
            'hop.example]" for *',
        ),
    ],
)
def test_what_is_said_of_relayhost_and_default_transport_is_what_is_written(
    tmp_path: Path, main: str, transport: str, relayhost: str, default: str
) -> None:
    draft, _ = told_of(tmp_path, main + "transport_maps = texthash:DIR/transport\n", transport=f"{transport}\n")
    assert relayhost in said_of(draft, "relayhost")[0].said
    assert default in said_of(draft, "default_transport")[0].said


def test_a_line_of_transport_maps_for_all_below_a_domain_goes_before_relay_transport(tmp_path: Path) -> None:
    main = "relay_domains = a.example.net, other.example\ntransport_maps = texthash:DIR/transport\n"
    _, settings = told_of(tmp_path, main, transport=".example.net slow:[gate.example]\n")
    assert route_of(settings, "x@a.example.net") == "slow:[gate.example]"
    assert route_of(settings, "x@other.example") == "relay:other.example"


SENDERS = """relayhost = [out.example]
sender_dependent_relayhost_maps = hash:DIR/relays
sender_dependent_default_transport_maps = hash:DIR/transports
transport_maps = hash:DIR/transport
"""


@pytest.mark.parametrize(
    ("line", "routes", "overridden"),
    [
        ("* slow:", {}, {"relayhost", "default_transport"}),
        ("* slow:[gate.example]", {}, {"relayhost", "default_transport"}),
        (
            "* :[gate.example]",
            {"two.example": "slow:[gate.example]", "three.example": "error:5.7.1 no"},
            {"relayhost"},
        ),
        (
            "* :",
            {
                "one.example": "smtp:[one.example]",
                "two.example": "slow:[out.example]",
                "three.example": "error:5.7.1 no",
            },
            set(),
        ),
        (
            "a.example slow:",
            {
                "one.example": "smtp:[one.example]",
                "two.example": "slow:[out.example]",
                "three.example": "error:5.7.1 no",
            },
            set(),
        ),
    ],
)
def test_a_line_of_transport_maps_for_everything_goes_before_routes_by_sender(
    tmp_path: Path, line: str, routes: dict[str, str], overridden: set[str]
) -> None:
    draft, settings = told_of(
        tmp_path,
        SENDERS,
        relays="@one.example [one.example]\n",
        transports="@two.example slow:\n@three.example error:5.7.1 no\n",
        transport=f"{line}\n",
    )
    assert settings.sender_routes == routes
    found = {
        each.what.removeprefix("sender_dependent_").partition("_maps")[0]
        for each in said_of(draft, "sender_dependent_")
        if each.fate is Fate.LEFT and f'transport_maps has "{line}", which goes before it, as in Postfix' in each.said
    }
    assert found == overridden
