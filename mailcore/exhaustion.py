"""Exhaustion: this host has run out of descriptors or memory, so that a failure says nothing about the remote site."""

from __future__ import annotations

import errno

__all__ = ["is_exhausted"]

# Descriptors of the process or of the machine, socket buffers, memory: socket(2), open(2), connect(2).
_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def is_exhausted(error: object) -> bool:
    """Returns whether ``error`` is an OSError because of an exhausted resource, or was raised from one."""
    while isinstance(error, BaseException):
        if isinstance(error, OSError) and error.errno in _ERRORS:
            return True
        error = error.__cause__
    return False
