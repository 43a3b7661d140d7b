"""Debian's Postfix and Waypost complete the same addresses in header fields of local programs, and leave the same alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailcore.rewriting.header_addresses import HeaderAddresses
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.eventually import eventually
from tests.software.postfix import postfix
from tests.software.programs import open_directory

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

FIELDS = [  # Postfix writes addresses in another layout, so that each case has one that both leave as it is
    b"From: root (Cron Daemon)",
    b"From: <root>",
    b"From: Cron Daemon <root>",
    b"From: =?utf-8?q?K=C3=AFm?= <kim>",
    b"From: a@example.org",
    b"Reply-To: kim.lee",
    b"Sender: owner-list",
    b"To: root",
    b"To: root, kim@example.org, rob",
    b"To: undisclosed-recipients:;",
    b"Cc: team: rob, kim@example.org;",
    b'Cc: "two words"@example.org',
    b'To: "John Doe"',
    b"To: kim@example.org <root>",
    b"To: kim (a (b) c), <>",
    b"Errors-To: postmaster",
    b"Subject: root",
]


async def test_postfix_completes_the_same(tmp_path: Path) -> None:
    ours = HeaderAddresses(domain="own.example")
    with open_directory() as directory:
        async with serving(ScriptedServer()) as hop:
            settings = {"myorigin": "own.example", "default_transport": f"smtp:[127.0.0.1]:{hop.port}"}
            async with postfix(directory, settings) as local:
                for number, field in enumerate(FIELDS):
                    message = b"X-Case: %d\n%s\n\nbody\n" % (number, field)
                    await local.sendmail("-f", "a@example.org", "b@example.net", message=message)
                await eventually(lambda: len(hop.messages) == len(FIELDS), lambda: local.log)
    for arrived in hop.messages:
        case = re.search(rb"^X-Case: (\d+)", arrived.data, re.MULTILINE)
        assert case is not None
        given = FIELDS[int(case[1])]
        name = given.partition(b":")[0]
        (written,) = re.findall(rb"^%s:.*(?:\r\n[ \t].*)*" % name, arrived.data, re.MULTILINE)
        made = ours.rewrite(name.lower(), given + b"\r\n")
        assert re.sub(rb"\s+", b" ", written).strip() == made.strip()
