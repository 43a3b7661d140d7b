"""The option --long, for every test: those marked ``long`` take minutes and are skipped without it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", default=False, help="run the tests that take minutes, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    skip = pytest.mark.skip(reason="takes minutes; ./test --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
