"""The key the portal signs sessions with: made once, readable by its user alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from django.utils.crypto import salted_hmac

__all__ = ["key_digest", "secret_key"]

SALT = "the key of the portals that share a database"
KEY_BYTES = 64  # more than Django's own 50 characters


def secret_key(directory: Path) -> str:
    """Returns the key in ``directory``/secret.key; creates it if it is missing. Two processes that start at the same
    time get the same key. Raises OSError."""
    path = directory / "secret.key"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = directory / f"secret.key.{os.getpid()}.new"
    if not path.exists():
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # fails when another was quicker: then theirs counts
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_text().strip()


def key_digest(key: str) -> str:
    """Returns a digest that tells whether two portals have one key, and nothing of the key."""
    return salted_hmac(SALT, "", key, algorithm="sha256").hexdigest()
