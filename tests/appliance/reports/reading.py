"""Pages of reports as a viewer gets them."""

from __future__ import annotations

import html
import json
import re
from datetime import date
from typing import Any

from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import markup_of

__all__ = ["DAY", "URL", "chart", "equation", "figures", "page", "section", "table"]

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


def figures(text: str) -> dict[str, str]:
    """The key figures of a page or of the HTML of a mail: value by label."""
    of_page = r'<span class="figure">([^<]*)</span><span class="label">([^<]*)</span>'
    found = re.findall(of_page, text) or re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", text)
    return {html.unescape(label): html.unescape(value) for value, label in found}


def equation(text: str) -> dict[str, str]:
    """The terms of the balance: value by label."""
    terms = re.search(r"<p class=.sum.>(.*?)</p>|<p>(queued at the start.*?)</p>", text, re.DOTALL)
    assert terms is not None
    plain = re.sub(r"<[^>]*>", "", terms[1] or terms[2])
    each = (" ".join(term.split()) for term in re.split(r"\s[+=≠]\s", f" {plain} "))
    return {term.rpartition(" ")[0]: term.rpartition(" ")[2] for term in each if term}


def table(text: str, name: str) -> list[dict[str, str]]:
    """The rows of a table of the page, by the labels of its columns."""
    part = section(text, name)
    heads = [re.sub(r"<[^>]*>|[▾▴]", "", each).strip() for each in re.findall(r"<th [^>]*>(.*?)</th>", part, re.DOTALL)]
    body = re.search(r"<tbody>(.*?)</tbody>", part, re.DOTALL)
    rows = re.findall(r"<tr>(.*?)</tr>", body[1], re.DOTALL) if body is not None else []
    cells = (
        [re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in rows
    )
    return [dict(zip(heads, row, strict=True)) for row in cells]


def chart(text: str, name: str) -> dict[str, Any]:
    """The values of a chart of the page."""
    found = re.search(rf'<script id="lines-{name}" type="application/json">(.*?)</script>', text)
    assert found is not None
    values: dict[str, Any] = json.loads(found[1])["values"]
    return values
