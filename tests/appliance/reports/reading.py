"""Pages of reports as a viewer gets them."""

from __future__ import annotations

import re
from datetime import date

from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import markup_of

__all__ = ["DAY", "URL", "page", "section"]

DAY = date(2026, 11, 18)
URL = "/reports/day/2026-11-18/"


def page(url: str = URL) -> str:
    """As a viewer gets it."""
    answer = client_of("viewer").get(url)
    assert answer.status_code == 200
    return markup_of(answer)


def section(text: str, name: str) -> str:
    found = re.search(rf'<section class="report-table" id="{name}">.*?</section>', text, re.DOTALL)
    assert found is not None
    return found[0]
