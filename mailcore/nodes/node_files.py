"""The files with which a node proves who it is, in ``nodes`` of its home: the authority, and its own certificate and key.

Only the owner of the home enters the directory. It is in no backup: a restored home joins again.

Keeps law: keys-stay-secret (docs/laws.md).
"""

from __future__ import annotations

import os
from pathlib import Path

from mailcore.config.settings import Settings
from mailcore.nodes.authority import Authority, NodeKeys

__all__ = ["AUTHORITY", "CERTIFICATE", "KEY", "directory_of", "read_authority", "write_files"]

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
CERTIFICATE, KEY = "node.pem", "node.key"
_DIRECTORY = "nodes"


def directory_of(settings: Settings) -> Path:
    """Returns the directory of the files."""
    return settings.home / _DIRECTORY


def read_authority(settings: Settings) -> Authority:
    """Returns the authority of this node. Raises OSError."""
    directory = directory_of(settings)
    return Authority((directory / AUTHORITY).read_bytes(), (directory / AUTHORITY_KEY).read_bytes())


def write_files(settings: Settings, authority: Authority, keys: NodeKeys) -> None:
    """Writes all files, for the owner of the home alone. Raises OSError."""
    directory = directory_of(settings)
    directory.mkdir(mode=0o700, exist_ok=True)
    directory.chmod(0o700)
    owner = settings.home.stat()
    files = {
        AUTHORITY: authority.certificate, AUTHORITY_KEY: authority.key, CERTIFICATE: keys.certificate, KEY: keys.key
    }  # fmt: skip
    news = {name: directory / f".{name}.new" for name in files}
    for name, data in files.items():
        news[name].unlink(missing_ok=True)
        descriptor = os.open(news[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            if os.geteuid() == 0:
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
    for name, new in news.items():
        new.replace(directory / name)
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.geteuid() == 0:
            os.fchown(opened, owner.st_uid, owner.st_gid)
        os.fsync(opened)
    finally:
        os.close(opened)
