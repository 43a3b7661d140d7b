"""Defines the operations about kept files: certificates, keys, DKIM keys, CAs and maps (``mailcore.config.kept_files``).

A file is handed in and checked first; a setting refers to it afterwards, by ``settings_change``. No answer has a private key.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from mailcore.control.protocol.operation import Access, Answerer, Arguments, Operation, Result
from mailcore.control.protocol.settings import KeyFault, SettingChange

__all__ = [
    "OPERATIONS", "TEXT_MAX", "CertificateFacts", "DkimFacts", "Kept", "KeptArguments", "KeptFile", "KeptMade",
    "KeptMakeArguments", "KeptPutArguments", "KeptRemoveArguments", "KeptText", "KeptUse", "KeptUseArguments",
]  # fmt: skip

TEXT_MAX = 900_000  # characters of a file that is handed in: with the rest of the request it fits a frame
Text = Annotated[str, Meta(max_length=TEXT_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=180)]
FileName = Annotated[str, Meta(min_length=1, max_length=260)]
ServerName = Annotated[str, Meta(min_length=1, max_length=253)]
Form = Literal[
    "addresses", "patterns", "header_checks", "recipients", "routes", "sender_routes", "login_routes", "fallback_relay"
]


class KeptArguments(Arguments, frozen=True, kw_only=True):
    """A kept file, as ``kept:KIND/NAME.DIGEST``."""

    file: FileName


class KeptPutArguments(Arguments, frozen=True, kw_only=True):
    """A file that is handed in.

    ``key``: the private key of a certificate; "": one that is kept already, from a request or of the certificate before.
    ``form``: what the lines of a map are.
    """

    kind: Literal["certificate", "ca", "map"]
    name: Name
    text: Text
    key: Text = ""
    form: Form = "addresses"
    check: bool = False  # only check it


class KeptMakeArguments(Arguments, frozen=True, kw_only=True):
    """A key that is made here and stays: with a certificate that it signs itself, with a request for one, or for DKIM."""

    kind: Literal["certificate", "request", "dkim"]
    names: Annotated[
        list[ServerName], Meta(max_length=100)
    ] = []  # of the certificate; the first one is the file's name
    days: Annotated[int, Meta(ge=1, le=3650)] = 397
    domain: str = ""
    selector: str = ""
    algorithm: Literal["rsa", "ed25519"] = "rsa"


class KeptUseArguments(Arguments, frozen=True, kw_only=True):
    """Where a kept file is to be used, or not any more.

    ``place``: the setting, such as ``["receiver", "tls_certificate"]``, ``["certificate"]``, ``["dkim"]`` or
    ``["rewriting", "virtual_alias_maps"]``; empty: wherever an earlier content of the same name is used.
    """

    file: FileName
    place: list[str] = []
    names: Annotated[list[ServerName], Meta(max_length=100)] = []  # of [[certificate]]
    subdomains: bool = False  # of [[dkim]]
    patterns: bool = False  # a map has regular expressions
    remove: bool = False


class KeptRemoveArguments(KeptArguments, frozen=True, kw_only=True):
    """A kept file that no setting in the files refers to; earlier states of the settings that do can't be returned to then."""


class CertificateFacts(Result):
    """A certificate and the rest of its chain. Times are wall clock."""

    subject: str
    issuer: str
    names: list[str]
    not_before: float
    not_after: float
    fingerprint: str  # SHA-256, in hexadecimal
    key_type: str
    chain: list[str]  # subjects of the certificates behind it
    self_signed: bool = False
    has_key: bool = False  # its private key is kept, too
    warnings: list[str] = []


class DkimFacts(Result):
    """A DKIM key and its DNS record."""

    domain: str
    selector: str
    algorithm: str  # rsa-sha256 or ed25519-sha256
    record_name: str
    record: str
    strings: list[str]  # the record in parts of at most 255 characters
    zone_line: str


class KeptFile(Result):
    """A kept file. ``name`` without the digest. A private key has its public facts only."""

    file: str
    kind: str
    name: str
    size_bytes: int
    at: float  # when it was handed in
    used: list[str]  # settings in the files that refer to it
    in_history: int = 0  # earlier states of the settings that refer to it
    lines: int = 0  # of a map
    certificate: CertificateFacts | None = None
    dkim: DkimFacts | None = None
    fault: str = ""  # why it can't be used


class Kept(Result):
    """All kept files, the newest of each name first."""

    files: list[KeptFile]


class KeptText(Result):
    """The text of a kept file that has nothing secret in it."""

    text: str


class KeptMade(Result):
    """A file that is kept now, or its faults: ``key`` is the argument, with the line where there is one."""

    faults: list[KeyFault]
    file: str = ""
    facts: KeptFile | None = None
    request: str = ""  # PEM, for the authority that is to sign it
    elsewhere: str = ""  # where a file that was removed here may still be


class KeptUse(Result):
    """The changes for ``settings_change`` that use the file, or end its use."""

    changes: list[SettingChange]
    words: list[str] = []  # consequences that the difference does not show


_READ, _CHANGE, _CONTROL = Access.READ, Access.CHANGE, Answerer.CONTROL
OPERATIONS = (
    Operation("kept", Arguments, _READ, _CONTROL, "List the files that Waypost keeps, and where they are used.", Kept),
    Operation("kept_text", KeptArguments, _READ, _CONTROL, "Show the text of a map, a certificate or CAs.", KeptText),
    Operation(
        "kept_put", KeptPutArguments, _CHANGE, _CONTROL, "Check a certificate, CAs or a map, and keep it.", KeptMade
    ),
    Operation(
        "kept_make", KeptMakeArguments, _CHANGE, _CONTROL, "Make a key for TLS or DKIM that stays here.", KeptMade
    ),
    Operation("kept_use", KeptUseArguments, _READ, _CONTROL, "Tell the changes of settings that use a file.", KeptUse),
    Operation("kept_remove", KeptRemoveArguments, _CHANGE, _CONTROL, "Remove a file that no setting uses.", KeptMade),
)
