"""What this machine has run out of is told apart from what a site did."""

from __future__ import annotations

import errno
import socket

import pytest

from mailcore.exhaustion import is_exhausted
from tests.exhausted import no_descriptors


def test_a_process_without_descriptors_is_exhausted() -> None:
    with no_descriptors(), pytest.raises(OSError, match="Too many open files") as raised, socket.socket():
        pass
    assert is_exhausted(raised.value)


def test_what_was_raised_from_it_is_it_too() -> None:
    error = ValueError()
    error.__cause__ = OSError(errno.ENOMEM, "Cannot allocate memory")
    assert is_exhausted(error)


@pytest.mark.parametrize(
    "error", [None, "none", ValueError(), ConnectionRefusedError(errno.ECONNREFUSED, ""), OSError("none")]
)
def test_other_errors_are_not(error: object) -> None:
    assert not is_exhausted(error)
