"""Errors of the control socket in tests: by code and argument; and with every text that is for a person reworded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mailcore.control import async_client, client
from mailcore.control.client import ControlError, Refused
from mailcore.faults import Code, Fault, FaultError
from mailcore.frames import Response

__all__ = ["OTHER_WORDS", "other_words", "refused", "reword", "reworded"]

OTHER_WORDS = "these are other words"
# Names of the fields of answers that hold text of Waypost for a person.
SENTENCES = frozenset(
    {"active_full", "damage", "not_read", "note", "restored", "sentence", "stalled", "tuned_damage", "unanswered"}
)


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
    """Rewords what clients in this process read, as ``reword``."""
    reword(monkeypatch.setattr)


def reword(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Gives every error of the control socket, and every sentence in its answers, other words; empty texts stay empty.

    No program that is a client in this process, and no test, can then depend on the real words. ``replace``: as setattr.
    """
    result = client.result_of

    def of(response: Response) -> Any:
        return _with_other_words(result(response))

    def init(self: ControlError, message: str, *, code: Code | None = None, argument: str = "") -> None:
        FaultError.__init__(self, other_words(code or self.default, argument), code=code, argument=argument)

    replace(client, "result_of", of)
    replace(async_client, "result_of", of)
    replace(ControlError, "__init__", init)


def _with_other_words(answer: Any) -> Any:
    """Returns an answer with each Fault and each sentence in it reworded, however deep."""
    if isinstance(answer, list):
        return [_with_other_words(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    if answer.keys() == set(Fault.__struct_fields__):
        return answer | {"message": other_words(Code(answer["code"]), answer["argument"])}
    return {name: _sentence(value) if name in SENTENCES else _with_other_words(value) for name, value in answer.items()}


def _sentence(value: Any) -> Any:
    if isinstance(value, list):
        return [_sentence(each) for each in value]
    return OTHER_WORDS if isinstance(value, str) and value else value
