"""Files that Waypost keeps itself, below ``home/kept``: certificates, their keys, DKIM keys, CAs and maps.

A setting refers to one as ``kept:KIND/NAME.DIGEST``, in the place of a path. The digest is of what the file has, so a file
never changes: another content is another reference. A change of a file is thus a change of settings, with the same check,
difference, history and return, and a file is written and synced before a setting refers to it.

Managed settings may name kept files and no others, each only where a file of its kind belongs; besides, in a list, the files
that the configuration file itself has under the same key.

Pure, except ``why_missing``.

Keeps law: kept-files-never-change, law: managed-is-a-layer (docs/laws.md).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mailcore.config.lines import Path as Key
from mailcore.config.map_file import REGEXP

__all__ = [
    "CA", "CERTIFICATE", "DIRECTORY", "DKIM", "KEY", "KINDS", "MAP", "Reference", "kept_path", "kind_of", "reference_of",
    "references_in", "resolved", "unkept", "why_missing",
]  # fmt: skip

DIRECTORY = "kept"  # below home
CERTIFICATE, KEY, DKIM, CA, MAP = "certificate", "key", "dkim", "ca", "map"
KINDS = (CERTIFICATE, KEY, DKIM, CA, MAP)
PREFIX = "kept:"
NAME_RULE = "1 to 180 small letters, digits and . _ - *, such as mail.example.org"
_REFERENCE = re.compile(r"kept:([a-z]+)/([a-z0-9_*][a-z0-9._*-]{0,179})\.([0-9a-f]{16})")
_NAME = re.compile(r"[a-z0-9_*][a-z0-9._*-]{0,179}")
_KINDS: dict[tuple[str, str], str] = {  # section and key -> the kind of file that it names
    ("receiver", "tls_certificate"): CERTIFICATE,
    ("receiver", "tls_key"): KEY,
    ("certificate", "certificate"): CERTIFICATE,
    ("certificate", "key"): KEY,
    ("dkim", "key"): DKIM,
    ("arc", "key"): DKIM,
    ("tls", "ca_file"): CA,
    ("tls_policy", "ca_file"): CA,
    ("recipients", "relay_recipient_maps"): MAP,
    **{
        ("rewriting", name): MAP
        for name in (
            "sender_canonical_maps", "recipient_canonical_maps", "canonical_maps", "virtual_alias_maps", "sender_bcc_maps",
            "recipient_bcc_maps", "header_checks",
        )
    },
    **{("route_maps", name): MAP for name in ("routes", "sender_routes", "login_routes", "fallback_relay")},
}  # fmt: skip


class Reference(NamedTuple):
    """The name of a kept file. ``str`` is as a setting has it."""

    kind: str
    name: str
    digest: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.kind}/{self.name}.{self.digest}"

    @classmethod
    def parse(cls, text: object) -> Reference | None:
        """Returns the reference that a value is; None if it is none."""
        match = _REFERENCE.fullmatch(text.removeprefix(REGEXP)) if isinstance(text, str) else None
        return cls(*match.groups()) if match is not None and match[1] in KINDS else None


def reference_of(kind: str, name: str, content: bytes) -> Reference:
    """Returns the reference of a file with this content. Raises ValueError for a name that is not allowed."""
    if kind not in KINDS or not _NAME.fullmatch(name):
        raise ValueError(f"must be {NAME_RULE}")
    return Reference(kind, name, hashlib.sha256(content).hexdigest()[:16])


def kept_path(home: Path, reference: Reference) -> Path:
    """Returns the path of a kept file."""
    return home / DIRECTORY / reference.kind / f"{reference.name}.{reference.digest}"


def kind_of(key: Key) -> str:
    """Returns the kind of the files that a key names; "" for a key that names none, or none that is kept."""
    names = [part for part in key if isinstance(part, str)]
    return _KINDS.get((names[0], names[-1]), "") if len(names) > 1 else ""


def unkept(key: Key, value: Any, below: Any) -> str:
    """Returns why a managed value of a key that names files is refused; "" if it names kept ones. ``below``: the file's."""
    kind = kind_of(key)
    known = set(below) if isinstance(below, list) else {below}
    for text in value if isinstance(value, list) else [value]:
        reference = Reference.parse(text)
        if text == "" or (isinstance(text, str) and text in known):
            continue
        if reference is None:
            return (
                f"can't be managed here: it names a file that the configuration file does not name at this key: {text!r}. Name "
                "it there (again), undo this change, or use a file that Waypost keeps, "
                f"{PREFIX}{kind}/NAME.DIGEST, as waypost kept list shows it"
            )
        if reference.kind != kind:
            return f"must be a kept file of the kind {kind} (got {reference})"
    return ""


def references_in(value: Any) -> Iterator[Reference]:
    """Yields the references in a document or a value of one."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from references_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from references_in(each)
    elif (reference := Reference.parse(value)) is not None:
        yield reference


def resolved(value: Any, home: Path, key: Key = ()) -> Any:
    """Returns a document with a path in the place of each reference where a file of its kind belongs."""
    if isinstance(value, dict):
        return {name: resolved(each, home, (*key, name)) for name, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, home, (*key, number)) for number, each in enumerate(value)]
    reference = Reference.parse(value)
    if reference is None or reference.kind != kind_of(key):
        return value
    prefix = REGEXP if value.startswith(REGEXP) else ""
    return f"{prefix}{kept_path(home, reference)}"


def why_missing(home: Path, reference: Reference) -> str:
    """Returns why a kept file can't be used: it is not there, or not whole; "" if it can."""
    try:
        with open(kept_path(home, reference), "rb", opener=_no_link) as file:
            content = file.read()
    except FileNotFoundError:
        return f"names {reference}, which is not kept here any more; waypost kept list shows the files that are"
    except OSError as error:
        return f"names {reference}, which cannot be read: {error.strerror}"
    if hashlib.sha256(content).hexdigest()[:16] != reference.digest:
        return f"names {reference}, whose content is another one: the file was changed by hand"
    return ""


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)
