"""Files that Waypost keeps: certificates with their keys, DKIM keys, and maps: handed in or made, listed, used, removed.

A file is kept first. ``use_kept_file`` then answers the changes of settings that use it, which ``change_settings`` takes.

Law: a private key is in no answer, in no log, and not in the database.

Keeps law: secrets-stay-out (docs/laws.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables
from ninja import Query
from pydantic import Field, StringConstraints

from appliance.accounts.roles import Role
from appliance.api.bodies import Body, Why
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.common.door import door
from appliance.managed.dkim_records import state_of
from appliance.managed.handing_in import WrongFields, kept, kept_removed
from appliance.managed.places import FORMS, MAP_PLACES
from mailcore.control.protocol.kept import TEXT_MAX, Kept, KeptFile, KeptMade, KeptText, KeptUse
from mailcore.faults import Code

__all__ = [
    "add_certificate", "as_error", "certificate_text", "certificates", "dkim_keys", "dkim_record", "make_certificate",
    "make_dkim_key", "map_text", "maps", "put_map", "remove_kept_file", "request_certificate", "use_dkim_key", "use_kept_file",
]  # fmt: skip

NAMES_MAX, NAME_MAX, FILE_MAX, SERVER_MAX = 100, 180, 260, 253  # as the core allows
DAYS_MAX, DAYS = 3_650, 397
F = TypeVar("F", bound=Callable[..., Any])
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MAX)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX)]
ServerName = Annotated[str, StringConstraints(min_length=1, max_length=SERVER_MAX)]
Names = Annotated[list[ServerName], Field(min_length=1, max_length=NAMES_MAX)]
File = Annotated[
    str, StringConstraints(min_length=1, max_length=FILE_MAX), Field(description="as listed: kept:KIND/NAME.DIGEST")
]
PlacePart = Annotated[str, StringConstraints(min_length=1, max_length=100)]
MapPlace = Annotated[
    str,
    StringConstraints(min_length=1, max_length=100),
    Field(description="the setting that the map is for", json_schema_extra={"enum": list(MAP_PLACES)}),
]


class KeptFiles(msgspec.Struct, kw_only=True):
    """Files that Waypost keeps, the newest of each name first. Of a private key, its public facts."""

    files: list[KeptFile]


class FileKept(msgspec.Struct, kw_only=True):
    """A file that is kept now; no setting uses it by that."""

    file: str  # kept:KIND/NAME.DIGEST
    facts: KeptFile | None
    request: str  # PEM, for the authority that is to sign it; "": it is none


class DkimRecord(msgspec.Struct, kw_only=True):
    """The record of a key in the DNS, compared with the key."""

    file: str
    record_name: str
    record: str  # as it must be
    state: str  # ok, no_record, other_key, revoked, not_valid, testing or no_answer
    about: str  # the next step, for a person


class FileRemoved(msgspec.Struct, kw_only=True):
    """A file that this node does not keep any more."""

    file: str
    elsewhere: str  # why other nodes may still keep it; "" if there are none


class CertificateBody(Body):
    """A certificate that is handed in."""

    name: Name = Field(description="of the file; the same name replaces an earlier certificate")
    certificate: Text = Field(description="PEM: the server's certificate first, then its chain")
    key: Annotated[str, StringConstraints(max_length=TEXT_MAX)] = Field(
        default="", description="PEM, without a password; left out: a key that is kept already, as of a request"
    )
    why: Why


class NewCertificateBody(Body):
    """A certificate that is made here and signs itself."""

    names: Names
    days: int = Field(default=DAYS, ge=1, le=DAYS_MAX)
    why: Why


class RequestBody(Body):
    """A request for a certificate. The key is made here, and stays."""

    names: Names
    why: Why


class NewDkimBody(Body):
    """A DKIM key that is made here, and stays."""

    domain: ServerName
    selector: Annotated[str, StringConstraints(min_length=1, max_length=63)]
    algorithm: Literal["rsa", "ed25519"] = "rsa"
    why: Why


class UseDkimBody(Body):
    """A DKIM key with which mail is to be signed."""

    file: File
    subdomains: bool = False
    unpublished: bool = Field(default=False, description="also if the DNS has another record, or none")


class MapBody(Body):
    """A map that is handed in."""

    name: Name = Field(description="of the map; the same name replaces an earlier one")
    place: MapPlace
    text: Annotated[str, StringConstraints(max_length=TEXT_MAX)]
    patterns: bool = Field(default=False, description="its lines are regular expressions")
    why: Why


class UseBody(Body):
    """Where a kept file is to be used, or not any more."""

    file: File
    place: list[PlacePart] = Field(
        default_factory=list,
        max_length=3,
        description='such as ["receiver", "tls_certificate"], ["certificate"] or ["rewriting", "virtual_alias_maps"]; '
        "empty: wherever an earlier content of the same name is used",
    )
    names: list[ServerName] = Field(
        default_factory=list, max_length=NAMES_MAX, description='of clients, for the place ["certificate"]'
    )
    patterns: bool = Field(default=False, description="a map has regular expressions")
    remove: bool = Field(default=False, description="no setting uses it any more")


class RemoveFileBody(Body):
    """A file to remove."""

    file: File
    why: Why


def _look(path: str, tag: str, answer: Any) -> Callable[[F], F]:
    return operation("GET", path, tag=tag, scopes={Scope.READ}, answer=answer)


def _change(path: str, tag: str, answer: Any, status: int = 200) -> Callable[[F], F]:
    return operation(
        "POST", path, tag=tag, scopes={Scope.SETTINGS}, least=Role.ADMINISTRATOR, answer=answer, status=status
    )


# -- certificates


@_look("/certificates", "Certificates", KeptFiles)
def certificates(request: HttpRequest) -> KeptFiles:
    """Lists the certificates that Waypost keeps, and the settings that use them."""
    return _files(request, "certificate")


@_look("/certificates/text", "Certificates", KeptText)
def certificate_text(request: HttpRequest, file: Query[File]) -> KeptText:
    """Returns a certificate and its chain as PEM, without its key."""
    return _text(request, "certificate", file)


@_change("/certificates", "Certificates", FileKept, 201)
@sensitive_variables("body")
def add_certificate(request: HttpRequest, body: CertificateBody) -> FileKept:
    """Checks a certificate and its key, and keeps them."""
    given = {"kind": "certificate", "name": body.name.lower(), "text": body.certificate, "key": body.key}
    return _kept(request, body, "certificate.add", given["name"], "kept_put", given, {"text": "certificate"})


@_change("/certificates/self-signed", "Certificates", FileKept, 201)
def make_certificate(request: HttpRequest, body: NewCertificateBody) -> FileKept:
    """Makes a key, and a certificate that it signs itself."""
    given = {"kind": "certificate", "names": body.names, "days": body.days}
    return _kept(request, body, "certificate.make", ", ".join(body.names), "kept_make", given)


@_change("/certificates/request", "Certificates", FileKept, 201)
def request_certificate(request: HttpRequest, body: RequestBody) -> FileKept:
    """Makes a key, and a request for an authority. The signed certificate is then added without a key."""
    given = {"kind": "request", "names": body.names}
    return _kept(request, body, "certificate.request", ", ".join(body.names), "kept_make", given)


# -- DKIM


@_look("/dkim-keys", "DKIM keys", KeptFiles)
def dkim_keys(request: HttpRequest) -> KeptFiles:
    """Lists the DKIM keys that Waypost keeps, with the DNS record of each, and the settings that use them."""
    return _files(request, "dkim")


@_look("/dkim-keys/record", "DKIM keys", DkimRecord)
def dkim_record(request: HttpRequest, file: Query[File]) -> DkimRecord:
    """Looks up the DNS record of a key, and compares it with the key. It may take five seconds."""
    return _record(_dkim_file(request, file))


@_change("/dkim-keys", "DKIM keys", FileKept, 201)
def make_dkim_key(request: HttpRequest, body: NewDkimBody) -> FileKept:
    """Makes a DKIM key. The answer has the record to publish."""
    given = {"kind": "dkim", "domain": body.domain, "selector": body.selector, "algorithm": body.algorithm}
    subject = f"{body.selector}._domainkey.{body.domain}"
    return _kept(request, body, "dkim.make", subject, "kept_make", given)


@_change("/dkim-keys/use", "DKIM keys", KeptUse)
def use_dkim_key(request: HttpRequest, body: UseDkimBody) -> KeptUse:
    """Returns the changes of settings that sign with a key, if its record is published. Nothing is changed."""
    file = _dkim_file(request, body.file)
    if not body.unpublished:
        found = _record(file)
        if found.state != "ok":
            raise ApiError(f"{found.record_name}: {found.about}", code=Code.CONFLICT, argument="unpublished")
    use = {"file": file.file, "place": ["dkim"], "subdomains": body.subdomains}
    return door(request).ask("kept_use", KeptUse, use)


# -- maps


@_look("/maps", "Maps", KeptFiles)
def maps(request: HttpRequest) -> KeptFiles:
    """Lists the maps that Waypost keeps, and the settings that use them."""
    return _files(request, "map")


@_look("/maps/text", "Maps", KeptText)
def map_text(request: HttpRequest, file: Query[File]) -> KeptText:
    """Returns the lines of a map."""
    return _text(request, "map", file)


@_change("/maps", "Maps", FileKept, 201)
def put_map(request: HttpRequest, body: MapBody) -> FileKept:
    """Checks the lines of a map, and keeps it."""
    place = MAP_PLACES.get(body.place)
    if place is None:
        raise ApiError(f"place: no setting for maps; allowed: {', '.join(MAP_PLACES)}", argument="place")
    if body.patterns and not place.patterns:
        raise ApiError(f"patterns: {place.key} has its own lines", argument="patterns")
    form = FORMS.get(place.key, "patterns" if body.patterns else "addresses")
    given = {"kind": "map", "name": body.name.lower(), "text": body.text, "form": form}
    return _kept(request, body, "map.put", given["name"], "kept_put", given)


# -- of all kinds


@_change("/kept-files/use", "Settings", KeptUse)
def use_kept_file(request: HttpRequest, body: UseBody) -> KeptUse:
    """Returns the changes of settings that use a kept file, or end its use; for a change of settings. Nothing is changed."""
    return door(request).ask("kept_use", KeptUse, body.model_dump())


@_change("/kept-files/remove", "Settings", FileRemoved)
def remove_kept_file(request: HttpRequest, body: RemoveFileBody) -> FileRemoved:
    """Removes a kept file that no setting uses, such as a key that others know."""
    return FileRemoved(file=body.file, elsewhere=kept_removed(request, body.file, body.why))


def _files(request: HttpRequest, kind: str) -> KeptFiles:
    return KeptFiles(files=[each for each in door(request).ask("kept", Kept).files if each.kind == kind])


def _text(request: HttpRequest, kind: str, file: str) -> KeptText:
    """Returns the text of a kept file of this kind. Raises ApiError, ControlError."""
    if not file.startswith(f"kept:{kind}/"):
        raise ApiError(f"file: must be kept:{kind}/NAME.DIGEST, as listed", argument="file")
    return door(request).ask("kept_text", KeptText, {"file": file})


def _dkim_file(request: HttpRequest, name: str) -> KeptFile:
    """Returns a DKIM key that is kept. Raises ApiError."""
    file = next((each for each in _files(request, "dkim").files if each.file == name), None)
    if file is None or file.dkim is None:
        raise ApiError("file: no such DKIM key is kept", code=Code.NOT_FOUND, argument="file")
    return file


def _record(file: KeptFile) -> DkimRecord:
    facts = file.dkim
    assert facts is not None
    found = state_of(file)
    return DkimRecord(
        file=file.file, record_name=facts.record_name, record=facts.record, state=found.state, about=found.about
    )


@sensitive_variables("body", "given")
def _kept(
    request: HttpRequest,
    body: Any,
    action: str,
    subject: str,
    operation_: str,
    given: dict[str, Any],
    arguments: dict[str, str] | None = None,
) -> FileKept:
    """Has the core keep or make a file. ``arguments``: the names in the body of the core's. Raises ApiError, ControlError."""
    try:
        made: KeptMade = kept(request, action, subject, operation_, given, body.why)
    except WrongFields as error:
        raise as_error(error, type(body).model_fields, arguments or {}) from None
    return FileKept(file=made.file, facts=made.facts, request=made.request)


def as_error(error: WrongFields, fields: Iterable[str], arguments: dict[str, str]) -> ApiError:
    """Returns the error with the first fault's place in the body."""
    first = error.faults[0]
    argument = arguments.get(first.key, first.key)
    known = argument.partition(".")[0].partition("[")[0] in set(fields)
    return ApiError(f"{error}; nothing was changed", argument=argument if known else "")
