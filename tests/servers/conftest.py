"""How the steps say what they measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """A line on the terminal, also of a test that passes."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n    {line}")

    return say
