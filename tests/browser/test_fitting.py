"""Cut, overlapping and covered parts of a page are found (fitting.py), and what is whole is not."""

from __future__ import annotations

import pytest

from tests.browser.chromium import SHARED
from tests.browser.fitting import misfits

LONG = "a text that is longer than its place"
CUT = "width: 5em; white-space: nowrap; overflow: hidden"


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        (f'<p style="{CUT}">{LONG}</p>', "cut off"),
        (f'<p style="height: 1em; width: 5em; overflow: hidden">{LONG}</p>', "cut off"),
        (f'<p>{LONG}</p><p style="margin-top: -2.2em">{LONG}</p>', "overlap"),
        (f'<p>{LONG}</p><p style="position: absolute; top: 0; left: 30px">{LONG}</p>', "overlap"),
        ('<button>Stop</button><div style="position: absolute; inset: 0"></div>', "covered"),
    ],
)
async def test_what_cannot_be_seen_is_found(html: str, fault: str) -> None:
    found = await _misfits_of(html)
    assert found
    assert found[0].startswith(fault)


@pytest.mark.parametrize(
    "html",
    [
        f"<p>{LONG}</p><p>{LONG}</p><button>Stop</button>",
        f'<p style="{CUT}; text-overflow: ellipsis">{LONG}</p>',
        f'<p style="width: 5em; white-space: nowrap; overflow: auto">{LONG}</p><p>{LONG}</p>',
        f'<div style="{CUT}"><span>short</span></div><p>{LONG}</p>',
        f'<p>{LONG}</p><dialog><button>Stop</button></dialog>',
        '<label for="all">All</label> <input type="checkbox" id="all">',
    ],
)  # fmt: skip
async def test_what_is_whole_is_no_fault(html: str) -> None:
    assert await _misfits_of(html) == []


async def _misfits_of(html: str) -> list[str]:
    page = await (await SHARED.get()).new_page()
    try:
        await page.set_content(f"<body>{html}</body>")
        return await misfits(page)
    finally:
        await page.close()
