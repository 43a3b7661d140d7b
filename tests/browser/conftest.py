"""All tests of this directory share an event loop, in it the browser, and a portal that was prepared once."""

from __future__ import annotations

import inspect
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.browser.chromium import SHARED
from tests.browser.site import RUN

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Has the tests run in the loop of the session, to which the browser belongs."""
    for item in items:
        if item.path.is_relative_to(HERE) and inspect.iscoroutinefunction(getattr(item, "function", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session", autouse=True)
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tells where the portal is prepared: once for all workers, whose directories lie beside each other."""
    base = tmp_path_factory.getbasetemp()
    RUN["directory"] = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest_asyncio.fixture(scope="session", loop_scope="session", autouse=True)
async def browser_ends() -> AsyncIterator[None]:
    """Ends the browser with the last test, if any has started it."""
    yield
    await SHARED.close()
