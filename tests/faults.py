"""Errors of the control socket in tests: by code and argument; and with every message reworded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from mailcore.control.client import Refused
from mailcore.faults import Code, Fault

__all__ = ["other_words", "refused", "reworded"]

_of = Refused.of


@contextlib.contextmanager
def refused(code: Code, argument: str = "") -> Iterator[None]:
    """The block is refused with this code, and the argument that is wrong."""
    with pytest.raises(Refused) as caught:
        yield
    assert (caught.value.code, caught.value.argument) == (code, argument)


def other_words(code: Code, argument: str = "") -> str:
    """The message of every such fault while ``reworded`` is used: a test that expects it expects the code and the argument."""
    return f"these are other words: {code.value} {argument}".rstrip()


@pytest.fixture
def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fault that a client is answered has another message: no program and no test can depend on the real one."""

    def of(fault: Fault) -> Refused:
        return _of(Fault(fault.code, other_words(fault.code, fault.argument), fault.argument))

    monkeypatch.setattr(Refused, "of", of)
