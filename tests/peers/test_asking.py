"""Why another node does not answer is said in words, also of an error that has none."""

from __future__ import annotations

import errno

import pytest

from mailcore.peers.asking import _why


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('192.0.2.1', 2527)"), "connection refused"),
        (ConnectionResetError(), "the connection broke"),
        (OSError("another node than b answers there"), "another node than b answers there"),
    ],
)
def test_the_words(error: Exception, words: str) -> None:
    """Before, a node whose connection broke without a word was said not to answer twice, and no reason."""
    assert _why(error) == words
