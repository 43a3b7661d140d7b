"""Debian's Postfix and Waypost get the same mistakes of clients, and answer with replies of the same class.

Where they do not, docs/lenience.md names the case, both answers and the reason. A difference that the page does not name fails
here, and so does a row of it that is no difference.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.lenient import Lenient
from tests.eventually import PATIENCE_S
from tests.receiver.server_in_process import Client, serving
from tests.software.lenience_cases import CASES, Case
from tests.software.postfix import postfix
from tests.software.programs import open_directory

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

PAGE = Path(__file__).parents[2] / "docs" / "lenience.md"
LENIENT = Lenient(domain="own.example")
NOT_TRUSTED: dict[str, Any] = {"networks": (), "domains": ("example.org",)}
# The mail is thrown away. Refused for good where Postfix by default defers, so that only what is looked for differs.
POSTFIX = {
    "relay_domains": "example.org",
    "default_transport": "discard:",
    "relay_transport": "discard:",
    "smtpd_relay_restrictions": "permit_mynetworks, reject_unauth_destination",
    "debug_peer_level": "1",
    "smtpd_forbid_bare_newline_exclusions": "",
}
PROFILES: dict[str, tuple[Mapping[str, object], Mapping[str, Any]]] = {  # settings of Postfix, and of ours
    "trusted": ({}, {}),
    "repaired": (
        {"smtpd_forbid_bare_newline": "normalize"},
        {"lenient": Lenient(domain="own.example", bare_lf_networks=("127.0.0.0/8",))},
    ),
    "refused": ({"smtpd_forbid_bare_newline": "reject"}, {}),
    "other": ({"mynetworks": "192.0.2.0/24"}, NOT_TRUSTED),
    "strict": (
        {"mynetworks": "192.0.2.0/24", "strict_rfc821_envelopes": "yes", "smtpd_forbid_bare_newline": "reject"},
        NOT_TRUSTED,
    ),
}
_ROW = re.compile(r"\| `` (.+?) `` \| (.+?) \| ([\d ]+) \| ([\d ]+) \|")


def named() -> dict[tuple[str, str], tuple[str, str]]:
    """The differences that the page names, by profile and case."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for line in PAGE.read_text().splitlines():
        if row := _ROW.fullmatch(line.strip()):
            for profile in PROFILES if row[2] == "all" else row[2].split(", "):
                assert (profile, row[1]) not in found, f"twice: {profile}, {row[1]}"
                found[profile, row[1]] = row[3], row[4]
    return found


async def classes(address: tuple[str, int], case: Case) -> str:
    """The first digits of the replies to what the case sends."""
    client = Client(*await asyncio.open_connection(*address))
    try:
        assert (await client.reply())[:3] == b"220"
        for command in case.before:
            assert (await client.ask(command))[:1] in b"23", (case.name, command)
        await client.send(case.sent)
        async with asyncio.timeout(PATIENCE_S):
            lines = (await client.reader.read()).split(b"\r\n")
    finally:
        await client.close()
    return " ".join(chr(line[0]) for line in lines if line[3:4] == b" ")


@pytest.mark.parametrize("profile", PROFILES)
async def test_a_mistake_has_the_answer_of_postfix_or_the_page_says_why_not(profile: str) -> None:
    theirs, ours = PROFILES[profile]
    differences: dict[str, tuple[str, str]] = {}
    with open_directory() as directory:
        async with postfix(directory, {**POSTFIX, **theirs}) as hop, serving(**{"lenient": LENIENT, **ours}) as server:
            for case in CASES:
                postfixs, own = await asyncio.gather(
                    classes(("127.0.0.1", hop.port), case), classes(server.address, case)
                )
                assert postfixs, case.name
                assert own, case.name
                if postfixs != own:
                    differences[case.name] = postfixs, own
    expected = {name: both for (where, name), both in named().items() if where == profile}
    rows = [f"| `` {name} `` | {profile} | {theirs} | {ours} |" for name, (theirs, ours) in differences.items()]
    assert differences == expected, "\n".join(rows)


def test_each_row_of_the_page_is_one_of_the_cases() -> None:
    names = {case.name for case in CASES}
    assert len(names) == len(CASES), "two cases have one name"
    assert {(profile, name) for profile, name in named() if name not in names or profile not in PROFILES} == set()
