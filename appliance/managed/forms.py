"""Forms for settings by kind: sections, and tables whose rows are added, changed and removed. Each becomes a draft.

The core checks what is entered before the difference is shown; each of its faults is at its field. A form is made for the state
of the settings that it shows: after a change by another administrator it is shown again, with what was entered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from appliance.accounts.roles import administrator, viewer
from appliance.common.door import Door, door
from appliance.managed.draft import Draft, value_text
from appliance.managed.fields import Field, fields_of, rest_of, with_faults
from appliance.managed.kinds import KINDS, MORE, Group, Kind, Table
from appliance.managed.views import checked
from appliance.reports.preferences import own
from mailcore.config.described import bounds_of, title_of
from mailcore.control.client import Refused
from mailcore.control.protocol.settings import KeyFault, KnownSetting, SettingsChanged, SettingsKnown

__all__ = ["kind", "kind_check", "row", "row_check"]

Key = tuple[str, ...]
ROWS_SHOWN = 500
DIGITS_MAX = 6  # of the number of a row
MEANWHILE = "The settings were changed meanwhile, here or in the file. Your input is below; check it again."


@require_safe
@viewer
def kind(request: HttpRequest, slug: str) -> HttpResponse:
    """Renders the forms and tables of a kind of settings."""
    return _kind(request, door(request), _kind_of(slug))


def _kind(
    request: HttpRequest,
    core: Door,
    page: Kind,
    *,
    forms: Mapping[int, Any] | None = None,
    words: str = "",
    status: int = 200,
) -> HttpResponse:
    answer = core.ask("settings", SettingsKnown)
    known = _by_key(answer)
    groups = [
        (forms or {}).get(number)
        or {"group": group, "fields": fields_of(_bounds(group), (group.section,), known), "left": []}
        for number, group in enumerate(page.groups)
    ]
    context = {
        "page": page,
        "groups": groups,
        "tables": [(table, _rows(table, answer), _removed_whole(table, answer)) for table in page.tables],
        "answer": answer,
        "words": words,
        "own": own() if page.slug == "reports" else {},
    }
    return render(request, "managed/kind.html", context, status=status)


@require_POST
@administrator
def kind_check(request: HttpRequest, slug: str) -> HttpResponse:
    """Renders what the entered values of a section would change; or the form again, with each fault at its field."""
    core, page = door(request), _kind_of(slug)
    number = request.POST.get("group", "")
    group = next((each for at, each in enumerate(page.groups) if str(at) == number), None)
    if group is None:
        raise Http404
    known = _by_key(core.ask("settings", SettingsKnown))
    fields = fields_of(_bounds(group), (group.section,), known, request.POST)
    changes = [change for each in fields if (change := each.change()) is not None]
    revision, faults, words = _look(core, request.POST.get("revision", ""), changes)
    left = with_faults(fields, faults)
    if faults or words:
        forms = {int(number): {"group": group, "fields": fields, "left": left}}
        return _kind(request, core, page, forms=forms, words=words, status=422 if faults else 409)
    if not changes:
        return _kind(request, core, page, words="Nothing was changed: all values are as they were.")
    return checked(request, core, Draft(changes, revision=revision))


# -- rows


@require_safe
@viewer
def row(request: HttpRequest, slug: str, section: str) -> HttpResponse:
    """Renders the form of a row; ``row``: its number or name, without it a new one."""
    table = _table_of(_kind_of(slug), section)
    core = door(request)
    answer = core.ask("settings", SettingsKnown)
    name = request.GET.get("row", "")[:400]
    if name and name not in {each["name"] for each in _rows(table, answer)}:
        raise Http404
    return _row(request, answer, slug, table, name, _row_fields(table, answer, name))


def _row(
    request: HttpRequest, answer: SettingsKnown, slug: str, table: Table, name: str, fields: Sequence[Field], *,
    given: Mapping[str, str] | None = None, left: Sequence[str] = (), words: str = "", status: int = 200,
) -> HttpResponse:  # fmt: skip
    context = {
        "page": KINDS[slug],
        "table": table,
        "row": name,
        "fields": fields,
        "answer": answer,
        "given": given or {"name": name, "text": _pair(answer, table, name)},
        "left": left,
        "words": words,
        "found": next((each for each in _rows(table, answer) if each["name"] == name), None),
    }
    return render(request, "managed/row.html", context, status=status)


@require_POST
@administrator
def row_check(request: HttpRequest, slug: str, section: str) -> HttpResponse:
    """Renders what a row that is added, changed or removed would change; or its form again, with the faults."""
    core, table = door(request), _table_of(_kind_of(slug), section)
    answer = core.ask("settings", SettingsKnown)
    name = request.POST.get("row", "")[:400]
    if name and table.shape == "list" and not (name.isascii() and name.isdecimal() and len(name) <= DIGITS_MAX):
        raise Http404  # the number of no row
    if request.POST.get("remove"):
        changes, removed = _without(table, answer, name, returns=request.POST["remove"] == "return")
        revision = answer.revision if request.POST.get("revision") == answer.revision else ""
        if not revision:
            fields = _row_fields(table, answer, name)
            return _row(request, answer, slug, table, name, fields, words=MEANWHILE, status=409)
        return checked(request, core, Draft(changes, removed, revision=revision))
    fields = _row_fields(table, answer, name, request.POST)
    entered, text = request.POST.get("name", "").strip(), request.POST.get("text", "").strip()
    changes, above = _with_row(table, answer, name or entered, fields, text, is_new=not name)
    given = {"name": name or entered, "text": text}
    if table.shape != "list" and not (name or entered):
        return _row(request, answer, slug, table, name, fields, given=given, left=["Enter a name."], status=422)
    if not changes:
        return _row(
            request, answer, slug, table, name, fields, given=given, left=["Set at least one value."], status=422
        )
    revision, faults, words = _look(core, request.POST.get("revision", ""), changes)
    left = with_faults(fields, faults, above)
    if faults or words:
        status = 422 if faults else 409
        now = core.ask("settings", SettingsKnown)
        return _row(request, now, slug, table, name, fields, given=given, left=left, words=words, status=status)
    return checked(request, core, Draft(changes, revision=revision))


def _with_row(
    table: Table, answer: SettingsKnown, name: str, fields: Sequence[Field], text: str, *, is_new: bool
) -> tuple[list[tuple[list[str], Any]], str]:
    """Returns the changes, and the key of the row in the core's faults."""
    if table.shape == "pairs":
        return [([table.section, name], text)], ""
    if table.shape == "named":
        changes = [change for each in fields if (change := each.change()) is not None]
        for key, _ in changes:
            key[1] = name
        return changes, f"{table.section}.{name}"
    rows = _list(answer, table.section)
    number = len(rows) if is_new else int(name)
    before = rows[number] if not is_new and number < len(rows) else {}
    bounds = bounds_of(table.section)
    made = rest_of(before, bounds)
    for each in fields:
        value = before.get(each.name) if each.text == each.was else each.entered()
        if value is not None:
            made[each.name] = value
    ordered = {key: made[key] for key in [*[each for each in bounds if each in made], *rest_of(made, bounds)]}
    return [([table.section], [*rows[:number], ordered, *rows[number + 1 :]])], f"{table.section}.{number}"


def _without(
    table: Table, answer: SettingsKnown, name: str, *, returns: bool
) -> tuple[list[tuple[list[str], Any]], list[list[str]]]:
    """Returns the changes without a row, and what of the file is removed; ``returns``: only what the file has stays."""
    key = [table.section, name]
    if table.shape == "list":
        rows = _list(answer, table.section)
        return [([table.section], [each for number, each in enumerate(rows) if str(number) != name])], []
    of_row = [each for each in answer.settings if each.key[:2] == key]
    if not returns and any(each.origin == "file" or each.below is not None for each in of_row):
        return [], [key]
    return [(key, None)], []


def _row_fields(table: Table, answer: SettingsKnown, name: str, posted: Mapping[str, Any] | None = None) -> list[Field]:
    if table.shape == "pairs":
        return []
    bounds = bounds_of(table.section)
    if table.shape == "named":
        return fields_of(bounds, (table.section, name), _by_key(answer), posted)
    rows = _list(answer, table.section)
    found = rows[int(name)] if name.isdecimal() and int(name) < len(rows) else {}
    known: dict[Key, KnownSetting] = {
        (table.section, name, each): KnownSetting(key=[each], value=value, origin="managed")
        for each, value in found.items()
    }
    return fields_of(bounds, (table.section, name), known, posted)


def _rows(table: Table, answer: SettingsKnown) -> list[dict[str, Any]]:
    """Returns the rows: name, what it says, origin, whether the file has it, and whether that is removed."""
    if table.shape == "list":
        origin = next((each.origin for each in answer.settings if each.key == [table.section]), "")
        return [
            {
                "name": str(number),
                "title": each.get("address", ""),
                "text": _summary(each),
                "origin": origin,
                "in_file": False,
                "removed": False,
            }
            for number, each in enumerate(_list(answer, table.section))
        ]
    found: dict[str, dict[str, Any]] = {}
    for each in answer.settings:
        if each.key[0] != table.section or len(each.key) < 2 or each.origin == "tuned":
            continue
        name = each.key[1]
        made: dict[str, Any] = {"name": name, "title": name, "origin": each.origin, "in_file": False, "removed": False}
        one = found.setdefault(name, made | {"set": {}})
        if each.origin != "removed":
            one["set"][".".join(each.key[2:])] = each.value
        if each.origin == "managed" or one["origin"] == "removed":
            one["origin"] = each.origin
        one["in_file"] = one["in_file"] or each.origin == "file" or each.below is not None
        one["removed"] = one["removed"] or each.removed == each.key[:2]
    for one in found.values():
        values = one.pop("set")
        one["text"] = str(values.get("", "")) if table.shape == "pairs" else _summary(values)
    return list(found.values())[:ROWS_SHOWN]


def _removed_whole(table: Table, answer: SettingsKnown) -> str:
    """Returns the key of a table whose rows of the file are removed as a whole; "" if they are not."""
    removed = any(each.key == [table.section] and each.origin == "removed" for each in answer.settings)
    return table.section if removed and table.shape == "list" else ""


def _summary(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in row.items() if name != "address")


def _list(answer: SettingsKnown, section: str) -> list[dict[str, Any]]:
    value: Any = next((each.value for each in answer.settings if each.key == [section]), [])
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _pair(answer: SettingsKnown, table: Table, name: str) -> str:
    value = next((each.value for each in answer.settings if each.key == [table.section, name]), None) or ""
    return str(value) if table.shape == "pairs" else ""


def _look(core: Door, revision: str, changes: Sequence[tuple[list[str], Any]]) -> tuple[str, list[KeyFault], str]:
    """Lets the core check changes. Returns the revision now, the faults, and words if the form was made for another one."""
    now = core.ask("settings", SettingsKnown).revision
    words = MEANWHILE if revision != now else ""
    if not changes:
        return now, [], words
    draft = Draft(list(changes), revision=now)
    try:
        return now, core.ask(draft.operation, SettingsChanged, draft.arguments(check=True)).faults, words
    except Refused as error:
        return now, [KeyFault(key="", reason=str(error))], words


def _by_key(answer: SettingsKnown) -> dict[Key, KnownSetting]:
    return {tuple(each.key): each for each in answer.settings}


def _bounds(group: Group) -> dict[str, Any]:
    return {name: each for name, each in bounds_of(group.section).items() if not group.keys or name in group.keys}


def _kind_of(slug: str) -> Kind:
    if slug in KINDS:
        return KINDS[slug]
    section = slug.removeprefix("section-")
    if slug != section and section in MORE:
        return Kind(slug, f"[{section}]", title_of(section), (Group(section, "Settings"),))
    raise Http404


def _table_of(page: Kind, section: str) -> Table:
    for table in page.tables:
        if table.section == section:
            return table
    raise Http404
