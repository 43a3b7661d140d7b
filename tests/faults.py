"""Errors of the control socket in tests: by code and argument; and with every message reworded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from mailcore.control import client
from mailcore.control.client import Refused
from mailcore.faults import Code, Fault
from mailcore.frames import Response

__all__ = ["other_words", "refused", "reworded"]

OTHER_WORDS = "these are other words"


@contextlib.contextmanager
def refused(code: Code, argument: str = "") -> Iterator[None]:
    """The block is refused with this code, and the argument that is wrong."""
    with pytest.raises(Refused) as caught:
        yield
    assert (caught.value.code, caught.value.argument) == (code, argument)


def other_words(code: Code, argument: str = "") -> str:
    """The message of every such fault while ``reworded`` is used: a test that expects it expects the code and the argument."""
    return f"{OTHER_WORDS}: {code.value} {argument}".rstrip()


@pytest.fixture
def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fault that a client is answered, also within an answer, has another message.

    No program that is a client in this process and no test can depend on the real one.
    """
    result, refused_of = client._result, Refused.of

    def of(response: Response) -> Any:
        return _with_other_words(result(response))

    def of_fault(fault: Fault) -> Refused:
        return refused_of(Fault(fault.code, other_words(fault.code, fault.argument), fault.argument))

    monkeypatch.setattr(client, "_result", of)
    monkeypatch.setattr(Refused, "of", of_fault)


def _with_other_words(answer: Any) -> Any:
    """Returns an answer with each Fault in it reworded, however deep."""
    if isinstance(answer, list):
        return [_with_other_words(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    if answer.keys() == set(Fault.__struct_fields__):
        return answer | {"message": other_words(Code(answer["code"]), answer["argument"])}
    return {name: _with_other_words(value) for name, value in answer.items()}
