"""The pages of certificates, DKIM keys and maps: hand one in or make one here, then change the settings that use it.

The core checks and keeps each file; what follows is a draft of settings, as for every other change. A private key goes from the
form to the core and nowhere else: it is in no page, in no draft and not in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.common.door import Door, door
from appliance.managed.dkim_records import state_of
from appliance.managed.draft import Draft
from appliance.managed.handing_in import WrongFields, kept, kept_removed
from appliance.managed.places import FORMS, MAP_PLACES, PLACES
from appliance.managed.views import checked
from mailcore.control.client import Refused
from mailcore.control.protocol.kept import TEXT_MAX, Kept, KeptFile, KeptMade, KeptText, KeptUse
from mailcore.control.protocol.settings import KeyFault, SettingsKnown

__all__ = [
    "certificate_add", "certificate_make", "certificates", "dkim", "dkim_make", "dkim_use", "map_put", "maps", "remove",
    "unuse",
]  # fmt: skip

NAMES_MAX = 100
ERRORS = {
    "text": "certificate",
    "key": "key",
    "name": "name",
    "names": "names",
}  # argument of the core -> field of the form


def _files(core: Door, kind: str) -> list[KeptFile]:
    return [each for each in core.ask("kept", Kept).files if each.kind == kind]


# -- certificates


@require_safe
@viewer
def certificates(request: HttpRequest) -> HttpResponse:
    """Renders the certificates that are kept and where they are used, and the forms for another one."""
    return _certificates(request, door(request))


def _certificates(
    request: HttpRequest, core: Door, *, errors: Mapping[str, str] | None = None, csr: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "files": _files(core, "certificate"),
        "manages": core.ask("settings", SettingsKnown).manages,
        "errors": errors or {},
        "given": {
            name: request.POST.get(name, "") for name in ("name", "certificate", "names", "form", "use")
        },  # not the key
        "csr": csr,
    }
    return render(request, "managed/certificates.html", context, status=status)


@require_POST
@administrator
@sensitive_post_parameters("key")
@sensitive_variables("key", "given")
def certificate_add(request: HttpRequest) -> HttpResponse:
    """Hands a certificate and its key to the core, and renders the change of settings that uses it; or its faults."""
    core = door(request)
    text, key = _text(request, "certificate"), _text(request, "key")
    name = request.POST.get("name", "").strip().lower()
    errors = _missing({"name": name, "certificate": text})
    if len(text) > TEXT_MAX or len(key) > TEXT_MAX:
        errors["certificate"] = f"At most {TEXT_MAX} characters."
    if errors:
        return _certificates(request, core, errors=errors, status=422)
    given = {"kind": "certificate", "name": name, "text": text, "key": key}
    made = _kept(request, "certificate.add", name, "kept_put", given)
    if made.faults:
        return _certificates(request, core, errors=_errors(made), status=422)
    return _used(request, core, made, *_certificate_use(request))


@require_POST
@administrator
def certificate_make(request: HttpRequest) -> HttpResponse:
    """Makes a key in the core, with a certificate that it signs itself or a request for one."""
    core = door(request)
    names = _words(request.POST.get("names", ""))
    if not names:
        return _certificates(request, core, errors={"names": "Enter the names of this host."}, status=422)
    is_request = request.POST.get("form") == "request"
    given = {"kind": "request" if is_request else "certificate", "names": names}
    action = f"certificate.{'request' if is_request else 'make'}"
    made = _kept(request, action, ", ".join(names), "kept_make", given)
    if made.faults:
        return _certificates(request, core, errors=_errors(made), status=422)
    if is_request:
        return _certificates(request, core, csr=made.request)
    return _used(request, core, made, *_certificate_use(request))


def _certificate_use(request: HttpRequest) -> tuple[list[str], dict[str, Any]]:
    if request.POST.get("use") == "names":
        return ["certificate"], {}
    return ["receiver", "tls_certificate"], {}


# -- DKIM


@require_safe
@viewer
def dkim(request: HttpRequest) -> HttpResponse:
    """Renders the DKIM keys that are kept, their records, and with ``check`` what the DNS has."""
    return _dkim(request, door(request))


def _dkim(
    request: HttpRequest, core: Door, *, errors: Mapping[str, str] | None = None, status: int = 200, made: str = ""
) -> HttpResponse:
    known = core.ask("settings", SettingsKnown)
    files = [each for each in _files(core, "dkim") if each.dkim is not None]
    looks = bool(request.GET.get("check"))
    sections: list[Any] = next((each.value for each in known.settings if each.key == ["dkim"]), [])
    kept = {each.file for each in files}
    context = {
        "rows": [(each, state_of(each) if looks and each.dkim else None, each.file == made) for each in files],
        "others": [each for each in sections if isinstance(each, dict) and each.get("key") not in kept],
        "manages": known.manages,
        "errors": errors or {},
        "checked": looks,
        "given": {name: request.POST.get(name, "") for name in ("domain", "selector", "algorithm")},
        "selector": _proposed([each.dkim.selector for each in files if each.dkim is not None]),
    }
    return render(request, "managed/dkim.html", context, status=status)


def _proposed(taken: list[str]) -> str:
    """Returns the next free selector: s1, s2 and so on."""
    return next(name for name in (f"s{number}" for number in range(1, len(taken) + 2)) if name not in taken)


@require_POST
@administrator
def dkim_make(request: HttpRequest) -> HttpResponse:
    """Makes a DKIM key in the core, and renders its DNS record."""
    core = door(request)
    given = {name: request.POST.get(name, "").strip() for name in ("domain", "selector", "algorithm")}
    errors = _missing({"domain": given["domain"], "selector": given["selector"]})
    if given["algorithm"] not in ("rsa", "ed25519"):
        errors["algorithm"] = "Choose RSA or Ed25519."
    if errors:
        return _dkim(request, core, errors=errors, status=422)
    name = f"{given['selector']}._domainkey.{given['domain']}"
    made = _kept(request, "dkim.make", name, "kept_make", {"kind": "dkim", **given})
    if made.faults:
        return _dkim(request, core, errors={each.key: each.reason for each in made.faults}, status=422)
    return _dkim(request, core, made=made.file)


@require_POST
@administrator
def dkim_use(request: HttpRequest) -> HttpResponse:
    """Renders the change that signs with a key, if its record is published; or anyway, if the person says so."""
    core = door(request)
    file = next((each for each in _files(core, "dkim") if each.file == request.POST.get("file")), None)
    if file is None or file.dkim is None:
        return _dkim(request, core, errors={"": "This key is not kept any more."}, status=409)
    if not request.POST.get("unpublished"):
        found = state_of(file)
        if found.state != "ok":
            words = f"{file.dkim.record_name}: {found.about}"
            return _dkim(request, core, errors={"file": file.file, "": words}, status=409)
    use = {"file": file.file, "place": ["dkim"], "subdomains": bool(request.POST.get("subdomains"))}
    return _draft(request, core, core.ask("kept_use", KeptUse, use))


# -- maps


@require_safe
@viewer
def maps(request: HttpRequest) -> HttpResponse:
    """Renders the maps by the setting that they are for; ``file`` and ``place``: one in the form."""
    core = door(request)
    file, place = request.GET.get("file", "")[:300], request.GET.get("place", "")[:100]
    given: dict[str, Any] = {"place": place if place in MAP_PLACES else ""}
    if file:
        found = next((each for each in _files(core, "map") if each.file == file), None)
        if found is not None:
            given |= {"name": found.name, "text": core.ask("kept_text", KeptText, {"file": file}).text}
            given["patterns"] = request.GET.get("patterns", "")
    return _maps(request, core, given)


def _maps(
    request: HttpRequest,
    core: Door,
    given: Mapping[str, Any],
    *,
    errors: Mapping[str, Any] | None = None,
    status: int = 200,
) -> HttpResponse:
    known = core.ask("settings", SettingsKnown)
    values = {".".join(each.key): each.value for each in known.settings}
    files = {each.file: each for each in _files(core, "map")}
    places = [
        (place, [_map_row(str(text), files) for text in (values.get(place.key) or ()) if isinstance(text, str)])
        for place in PLACES
    ]
    context = {
        "places": places,
        "unused": [each for each in files.values() if not each.used],
        "manages": known.manages,
        "given": given,
        "errors": errors or {},
    }
    return render(request, "managed/maps.html", context, status=status)


def _map_row(text: str, files: Mapping[str, KeptFile]) -> dict[str, Any]:
    plain = text.removeprefix("regexp:")
    return {"text": text, "file": files.get(plain), "patterns": plain != text}


@require_POST
@administrator
def map_put(request: HttpRequest) -> HttpResponse:
    """Hands a map to the core, and renders the change of settings that uses it; or the faults of its lines."""
    core = door(request)
    given = {name: request.POST.get(name, "") for name in ("name", "place", "patterns")} | {
        "text": _text(request, "text")
    }
    name, place = given["name"].strip().lower(), MAP_PLACES.get(given["place"])
    errors: dict[str, Any] = dict(_missing({"name": name}))
    if place is None:
        errors["place"] = "Choose what the map is for."
    if len(given["text"]) > TEXT_MAX:
        errors["text"] = [f"At most {TEXT_MAX} characters; a larger map is named in the configuration file."]
    if errors or place is None:
        return _maps(request, core, given, errors=errors, status=422)
    form = FORMS.get(place.key, "patterns" if given["patterns"] and place.patterns else "addresses")
    put = {"kind": "map", "name": name, "text": given["text"], "form": form}
    made = _kept(request, "map.put", name, "kept_put", put)
    if made.faults:
        for fault in made.faults:
            errors.setdefault(fault.key, []).append(fault.reason)
        return _maps(request, core, given, errors=errors, status=422)
    return _used(request, core, made, place.key.split("."), {"patterns": form == "patterns"})


# -- of all kinds


@require_POST
@administrator
def unuse(request: HttpRequest) -> HttpResponse:
    """Renders the change after which no setting uses a file."""
    core = door(request)
    found = core.ask("kept_use", KeptUse, {"file": request.POST.get("file", "")[:300], "remove": True})
    return _draft(request, core, found)


@require_POST
@administrator
def remove(request: HttpRequest) -> HttpResponse:
    """Removes a file that no setting uses."""
    file = request.POST.get("file", "")[:300]
    kind = file.partition(":")[2].partition("/")[0]
    if elsewhere := kept_removed(request, file):
        messages.warning(request, f"The file is removed from this node: {elsewhere}.")
    return redirect({"dkim": "managed:dkim", "map": "managed:maps"}.get(kind, "managed:certificates"))


@sensitive_variables("given")
def _kept(request: HttpRequest, action: str, subject: str, operation: str, given: dict[str, Any]) -> KeptMade:
    """Asks the core to keep or make a file; a refusal is a fault of the form, too."""
    try:
        return kept(request, action, subject, operation, given)
    except WrongFields as error:
        return KeptMade(faults=error.faults)
    except Refused as error:
        return KeptMade(faults=[KeyFault(key=error.argument or "name", reason=str(error))])


def _used(request: HttpRequest, core: Door, made: KeptMade, place: list[str], more: dict[str, Any]) -> HttpResponse:
    return _draft(request, core, core.ask("kept_use", KeptUse, {"file": made.file, "place": place, **more}))


def _draft(request: HttpRequest, core: Door, found: KeptUse) -> HttpResponse:
    revision = core.ask("settings", SettingsKnown).revision
    return checked(request, core, Draft([(each.key, each.value) for each in found.changes], revision=revision))


def _text(request: HttpRequest, name: str) -> str:
    """Returns what was pasted into a field, or the text of the file that was chosen beside it."""
    file: UploadedFile | None = request.FILES.get(f"{name}_file")
    if file is not None and file.size:
        data: bytes = file.read(4 * TEXT_MAX + 1)
        return data.decode("utf-8", "replace")
    return request.POST.get(name, "")


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()[:NAMES_MAX]


def _missing(given: Mapping[str, str]) -> dict[str, str]:
    return {name: "This is required." for name, value in given.items() if not value.strip()}


def _errors(made: KeptMade) -> dict[str, str]:
    """Returns the faults by the fields of the form."""
    return {ERRORS.get(each.key, each.key): each.reason for each in made.faults}
