"""The audit pages: the list of entries, one entry, and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_safe

from appliance.accounts.roles import operator
from appliance.audit.difference import difference
from appliance.audit.filters import FilterForm, page
from appliance.audit.models import Entry
from appliance.common.csv import CONTENT_TYPE, line
from mailcore.counted import counted

__all__ = ["csv", "entries", "entry"]

ROWS_MAX = 20_000  # some megabytes; the last line says when it was cut
NAMES_MAX = 200  # suggestions for the user filter
LATELY = 2_000  # entries whose actions are offered
COLUMNS = (
    "id",
    "at",
    "who",
    "address",
    "action",
    "subject",
    "outcome",
    "words",
    "why",
    "before",
    "after",
    "token",
    "node",
)


def _cursor(request: HttpRequest) -> int | None:
    given = request.GET.get("before", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None


@operator
@require_safe
def entries(request: HttpRequest) -> HttpResponse:
    """Renders the filtered list of entries; 422 if the filter is invalid."""
    form = FilterForm.of(request.GET)
    right = form.is_valid()
    context = {
        "form": form,
        "page": page(form, _cursor(request)) if right else None,
        "before": _cursor(request),
        "users": User.objects.order_by("username").values_list("username", flat=True)[:NAMES_MAX],
        "actions": sorted(set(Entry.objects.order_by("-id").values_list("action", flat=True)[:LATELY])),
    }
    return render(request, "audit/entries.html", context, status=200 if right else 422)


@operator
@require_safe
def entry(request: HttpRequest, pk: int) -> HttpResponse:
    """Renders one entry with its values before and after."""
    it = get_object_or_404(Entry, pk=pk)
    return render(
        request,
        "audit/entry.html",
        {"entry": it, "lines": difference(it.before, it.after, it.subject.rpartition(" ")[2])},
    )


@operator
@require_GET
def csv(request: HttpRequest) -> HttpResponse:
    """Returns the filtered entries as CSV, at most ``ROWS_MAX``; 400 if the filter is invalid."""
    form = FilterForm.of(request.GET)
    if not form.is_valid():
        return HttpResponse("Invalid filter.", status=400, content_type="text/plain")
    response = HttpResponse("".join(_lines(form)), content_type=CONTENT_TYPE)
    stamp = timezone.localtime().strftime("%Y-%m-%d-%H%M")
    response["Content-Disposition"] = f'attachment; filename="audit-{stamp}.csv"'
    return response


def _lines(form: FilterForm) -> Iterator[str]:
    yield line(COLUMNS)
    cursor: int | None = None
    told = 0
    while True:
        found = page(form, cursor, 1_000)
        for each in found.entries:
            yield line(_cells(each))
        told += len(found.entries)
        cursor = found.older
        if cursor is None:
            return
        if told >= ROWS_MAX:
            yield line([f"note: truncated after {counted(told, 'entry')}; narrow the filter to see the others"])
            return


def _cells(it: Entry) -> list[object]:
    return [
        it.pk, it.at.isoformat(timespec="milliseconds"), it.who, it.address or "", it.action, it.subject, it.outcome, it.words,
        it.why, _json(it.before), _json(it.after), it.token, it.node,
    ]  # fmt: skip


def _json(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
