"""The audit log, newest first, by cursor."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from django.http import Http404, HttpRequest, QueryDict
from ninja import Path, Query
from pydantic import BaseModel, Field

from appliance.accounts.roles import Role
from appliance.api.bodies import given, optional
from appliance.api.errors import ApiError
from appliance.api.operation import operation
from appliance.api.scopes import Scope
from appliance.audit.filters import PAGE, FilterForm, page
from appliance.audit.models import Entry

__all__ = ["audit", "audit_entry"]

ENTRIES_MAX = 1_000
ID_MAX = (1 << 63) - 1


class AuditFilter(BaseModel):
    """Selects entries as the audit page does."""

    who: str = optional(min_length=1, max_length=150, description="a user, or the beginning of its name and *")
    action: str = optional(min_length=1, max_length=60, description="such as queue.delete or queue.*")
    subject: str = optional(min_length=1, max_length=400)
    outcome: Literal["done", "refused", "unknown"] = optional()
    since: str = optional(min_length=1, max_length=40, description="such as 2026-11-21T10:00, in UTC")
    until: str = optional(min_length=1, max_length=40, description="such as 2026-11-21T10:00, in UTC")
    node: str = optional(min_length=1, max_length=64, description="the node of the portal that was asked; with [nodes]")
    text: str = optional(min_length=1, max_length=200, description="a part of the reason, the result or the subject")


class AuditEntry(msgspec.Struct, kw_only=True):
    """One audited change."""

    id: int
    at: float  # seconds since 1970
    node: str  # of the portal that was asked; "" without [nodes]
    who: str
    token: str  # by which it was asked; "": in the portal
    address: str  # "" if it is not known
    action: str
    subject: str
    outcome: str
    words: str
    why: str
    before: Any
    after: Any


class AuditPage(msgspec.Struct, kw_only=True):
    """A page of entries, newest first."""

    entries: list[AuditEntry]
    cursor: int | None  # of the next page; None: this is the last
    examined: int | None  # how many were looked at, when that was the bound


@operation("GET", "/audit", tag="Audit", scopes={Scope.READ}, least=Role.OPERATOR, answer=AuditPage)
def audit(
    request: HttpRequest,
    conditions: Query[AuditFilter],
    cursor: Annotated[int, Field(ge=1, le=ID_MAX)] | None = None,
    limit: Annotated[int, Field(ge=1, le=ENTRIES_MAX)] = PAGE,
) -> AuditPage:
    """Lists the entries of the audit log, newest first."""
    asked = QueryDict(mutable=True)
    asked.update(given(conditions))
    form = FilterForm.of(asked)
    if not form.is_valid():
        name, words = next(iter(form.errors.items()))
        raise ApiError(f"{name}: {words[0]}", argument=name)
    if missing := given(conditions).keys() - form.asked.keys():  # nothing but blanks, which the form strips
        name = min(missing)
        raise ApiError(f"{name}: an empty value is not allowed", argument=name)
    found = page(form, cursor, limit)
    return AuditPage(entries=[_entry(each) for each in found.entries], cursor=found.older, examined=found.examined)


@operation("GET", "/audit/{number}", tag="Audit", scopes={Scope.READ}, least=Role.OPERATOR, answer=AuditEntry)
def audit_entry(request: HttpRequest, number: Path[Annotated[int, Field(ge=1, le=ID_MAX)]]) -> AuditEntry:
    """Returns one entry of the audit log."""
    found = Entry.objects.filter(pk=number).first()
    if found is None:
        raise Http404(f"{number}: there is no such entry")
    return _entry(found)


def _entry(it: Entry) -> AuditEntry:
    return AuditEntry(
        id=it.pk,
        at=it.at.timestamp(),
        node=it.node,
        who=it.who,
        token=it.token,
        address=it.address or "",
        action=it.action,
        subject=it.subject,
        outcome=it.outcome,
        words=it.words,
        why=it.why,
        before=it.before,
        after=it.after,
    )
