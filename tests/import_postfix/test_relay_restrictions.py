"""In Postfix mynetworks alone permits nothing: the import writes [relay] networks only where its clients may relay."""

from __future__ import annotations

import smtplib
import tempfile
from pathlib import Path

import pytest

from bench.mta import Postfix
from mailcore.import_postfix.draft import Draft, Fate
from mailcore.import_postfix.machine import open_machine
from mailcore.import_postfix.relay_restrictions import refusing_list
from mailcore.import_postfix.translation import translate
from tests.import_postfix.translating import said_of, settings_of, told_of
from tests.receiver.configured_receiver import configured

NETWORKS = "mynetworks = 127.0.0.0/8 10.0.0.0/8\n"
WITH_LOGIN = "permit_sasl_authenticated, reject_unauth_destination"
INTERNAL = "permit_mynetworks, permit_sasl_authenticated, reject_unauth_destination"


def of(tmp_path: Path, main: str, *services: str) -> Draft:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "main.cf").write_text(NETWORKS + main)
    (etc / "master.cf").write_text("\n".join(services or ("smtp inet n - y - - smtpd",)) + "\n")
    draft, _ = translate(etc, "mail.example.org")
    settings_of(draft, etc)
    return draft


@pytest.mark.parametrize(
    ("main", "name"),
    [
        (f"smtpd_relay_restrictions = {WITH_LOGIN}", "smtpd_relay_restrictions"),
        (f"smtpd_relay_restrictions = reject_unauth_destination, {INTERNAL}", "smtpd_relay_restrictions"),
        ("smtpd_relay_restrictions = check_client_access hash:/etc/x, REJECT", "smtpd_relay_restrictions"),
        (
            f"smtpd_relay_restrictions =\nsmtpd_recipient_restrictions = {WITH_LOGIN}",
            "smtpd_recipient_restrictions",
        ),
        (
            f"smtpd_relay_restrictions = {INTERNAL}\nsmtpd_recipient_restrictions = {WITH_LOGIN}",
            "smtpd_recipient_restrictions",
        ),
        (
            f"smtpd_relay_restrictions = {INTERNAL}\nsmtpd_client_restrictions = permit_sasl_authenticated, reject",
            "smtpd_client_restrictions",
        ),
        (
            "smtpd_restriction_classes = strict\nstrict = reject_unauth_destination\n"
            "smtpd_relay_restrictions = strict, permit_mynetworks",
            "smtpd_relay_restrictions",
        ),
    ],
)
def test_where_postfix_wants_a_login_no_network_may_relay(tmp_path: Path, main: str, name: str) -> None:
    draft = of(tmp_path, f"{main}\n")
    assert draft.sections["relay"]["networks"] == []
    (finding,) = said_of(draft, "mynetworks")
    assert finding.fate is Fate.CHANGED
    assert "[relay] networks is empty: in Postfix these clients cannot send to other domains without" in finding.said
    assert f"because {name} does not permit them" in finding.said


@pytest.mark.parametrize(
    "main",
    [
        "",
        "compatibility_level = 3.6",
        f"smtpd_relay_restrictions = {INTERNAL}",
        f"smtpd_relay_restrictions =\nsmtpd_recipient_restrictions = reject_unknown_sender_domain, {INTERNAL}",
        f"smtpd_relay_restrictions = warn_if_reject reject_unauth_destination, {INTERNAL}",
        f"smtpd_restriction_classes = ours\nours = permit_mynetworks\nsmtpd_relay_restrictions = ours, {WITH_LOGIN}",
    ],
)
def test_where_postfix_relays_for_its_networks_they_are_taken_over(tmp_path: Path, main: str) -> None:
    draft = of(tmp_path, f"{main}\n")
    assert draft.sections["relay"]["networks"] == ["127.0.0.0/8", "10.0.0.0/8"]


def test_without_mynetworks_this_host_has_no_other_right(tmp_path: Path) -> None:
    draft, settings = told_of(tmp_path, f"smtpd_relay_restrictions = {WITH_LOGIN}\n")
    assert settings.relay.networks == ()
    assert [each.fate for each in said_of(draft, "mynetworks")] == [Fate.CHANGED]
    assert "[relay] networks is empty" in said_of(draft, "smtpd_relay_restrictions")[0].said


@pytest.mark.parametrize(
    ("main", "services", "relays"),
    [
        (INTERNAL, [f"smtp inet n - y - - smtpd -o {{ smtpd_relay_restrictions = {WITH_LOGIN} }}"], False),
        (
            INTERNAL,
            [
                "smtp inet n - y - 1 postscreen",
                f"smtpd pass - - y - - smtpd -o {{ smtpd_relay_restrictions = {WITH_LOGIN} }}",
            ],
            False,
        ),
        (
            INTERNAL,
            [
                f"smtp inet n - y - - smtpd -o {{ smtpd_relay_restrictions = {WITH_LOGIN} }}",
                "smtpd pass - - y - - smtpd",  # without postscreen
            ],
            False,
        ),
        (WITH_LOGIN, ["smtp inet n - y - - smtpd -o smtpd_relay_restrictions=permit_mynetworks,reject"], True),
        (
            WITH_LOGIN,
            [
                "smtp inet n - y - - smtpd",
                "127.0.0.1:10025 inet n - y - - smtpd -o smtpd_relay_restrictions=permit_mynetworks,reject",
            ],
            False,
        ),
        (
            WITH_LOGIN,
            [
                "smtp inet n - y - - smtpd",
                "10025 inet n - y - - smtpd -o mynetworks=127.0.0.1 -o smtpd_relay_restrictions=permit_mynetworks,reject",
            ],
            False,
        ),
    ],
)
def test_the_options_of_each_port_decide(tmp_path: Path, main: str, services: list[str], relays: bool) -> None:
    draft = of(tmp_path, f"smtpd_relay_restrictions = {main}\n", *services)
    assert bool(draft.sections["relay"]["networks"]) is relays
    (finding,) = said_of(draft, "mynetworks")
    assert ("add those that send there without a login" in finding.said) is ("10025" in services[-1])
    (finding,) = said_of(draft, "smtpd_relay_restrictions")
    assert ("at each port" in finding.said) is relays


def test_the_exceptions_of_the_counts_are_not_said_to_be_taken_over(tmp_path: Path) -> None:
    main = f"smtpd_relay_restrictions = {WITH_LOGIN}\nsmtpd_client_event_limit_exceptions = $mynetworks\n"
    (finding,) = said_of(of(tmp_path, main), "smtpd_client_event_limit_exceptions")
    assert (finding.fate, "counts all clients" in finding.said) == (Fate.LEFT, True)


@pytest.mark.skipif(bool(Postfix.missing()), reason=Postfix.missing() or "Postfix is here")
@pytest.mark.parametrize(
    "main",
    [
        f"smtpd_relay_restrictions = {WITH_LOGIN}",
        f"smtpd_relay_restrictions = defer_if_permit, {INTERNAL}",
        f"smtpd_relay_restrictions = warn_if_reject reject_unauth_destination, {INTERNAL}",
        f"smtpd_relay_restrictions = {INTERNAL}\nsmtpd_recipient_restrictions = {WITH_LOGIN}",
        f"smtpd_relay_restrictions = {INTERNAL}\nsmtpd_sender_restrictions = permit_sasl_authenticated, REJECT",
        f"smtpd_restriction_classes = ours\nours = permit_mynetworks\nsmtpd_relay_restrictions = ours, {WITH_LOGIN}",
    ],
)
def test_postfix_itself_refuses_where_a_list_is_named(main: str) -> None:
    with tempfile.TemporaryDirectory(prefix="wp") as name:
        Path(name).chmod(0o755)  # Postfix's own user works in it
        postfix = Postfix(Path(name), 9)
        main_cf = postfix.settings / "main.cf"
        lines = [each for each in main_cf.read_text().splitlines() if not each.startswith("smtpd_relay")]
        main_cf.write_text("\n".join([*lines, main, ""]))
        postfix.start()
        try:
            with smtplib.SMTP("127.0.0.1", postfix.port) as client:
                client.ehlo("a.example")
                client.mail("a@sender.example")
                code, _ = client.rcpt("x@other.example")
        finally:
            postfix.stop()
        assert bool(refusing_list(open_machine(postfix.settings, "host"))) is (code != 250)


async def test_a_client_in_mynetworks_gets_the_reply_of_postfix(tmp_path: Path) -> None:
    main = f"{NETWORKS}relay_domains = own.example\nsmtpd_relay_restrictions = {WITH_LOGIN}\n"
    told_of(tmp_path, main)
    home = tmp_path / "x"
    home.mkdir()
    text = (tmp_path / "waypost.toml").read_text().replace('home = "home"', 'home = "."')
    async with configured(home, text + "[queue]\nreserve_bytes = 0\n", head="") as server:
        assert await server.codes("a@other.example", "a@own.example") == ["554 5.7.1", "250 2.1.5"]
