"""The paths that alerts link to are those of the tables of addresses; the watch loads no page for them."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date

import pytest
from django.urls import reverse

from appliance.alerts import links
from tests.test_tidy import ROOT


def test_the_paths_are_those_of_the_pages() -> None:
    pages = ("status:overview", "destinations:list", "queue:ages", "reports:reports", "alerts:alerts")
    paths = [links.OVERVIEW, links.DESTINATIONS, links.AGES, links.REPORTS, links.ALERTS]
    assert paths == [reverse(page) for page in pages]
    assert links.report(date(2026, 11, 20)) == reverse("reports:report", args=["day", "2026-11-20"])
    assert links.webhook(7) == reverse("webhooks:webhook", args=[7])
    assert links.rule("core_away") == reverse("alerts:rule", args=["core_away"])


@pytest.mark.parametrize(
    "name",
    ["smtp:example.org", "smtp:[2001:db8::1]:25", "lmtp:unix:/run/a b", "x:a?b#c%d/e", "x:user+tag@b\u00fcro.example"],
)
def test_the_path_of_a_destination(name: str) -> None:
    assert links.destination(name) == reverse("destinations:one", args=[name])


def test_the_watch_loads_no_page() -> None:
    """They would take as much memory as the portal."""
    code = (
        "import django, sys; django.setup(); import appliance.alerts.management.commands.watch\n"
        "from tests.appliance.alerts.test_rules import FAILING, causes\n"
        "assert all(causes(each) for each in FAILING.values())\n"
        "print([name for name in sys.modules if name.endswith('.views') and name.startswith('appliance.')])"
    )
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.appliance.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
