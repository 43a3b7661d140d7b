"""What the first load of a page costs: at most FIRST_LOAD_BYTES over the wire, in a browser that has nothing in its cache."""

from __future__ import annotations

from pathlib import Path

from mailcore.lab.lab import Lab
from tests.browser.queue_steps import SLOW
from tests.browser.site import site
from tests.browser.wire import FIRST_LOAD_BYTES, USABLE, first_load

ROWS = 100  # of a page of the queue
TOMORROW = 4_000_000_000


async def test_a_first_load_is_light(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, site(tmp_path, lab, SLOW) as it:
        for number in range(ROWS):
            await it.core.inject(
                f"a-recipient-with-a-name{number}@some-domain{number}.example.org", not_before=TOMORROW
            )
        for path in USABLE:
            loaded = await first_load(it, path)
            assert loaded.bytes <= FIRST_LOAD_BYTES, f"{path}: {loaded.bytes} bytes\n{loaded.table}"
