"""The common base of all administration pages: for administrators only, each change needs a reason and is audited.

A change, its audit entry with the values before and after, and the ending of sessions are one transaction. Django's own admin
log is not written.
"""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, reverse
from django.utils.html import strip_tags

from appliance.accounts.roles import Role, role_of
from appliance.audit.record import record

__all__ = ["AuditedAdmin", "ReasonForm", "reason", "reason_field"]

WHY_MIN, WHY_MAX = 3, 1000  # characters; as everywhere in the portal


def reason_field() -> forms.CharField:
    """Returns the form field for the reason, which the audit requires."""
    return forms.CharField(
        label="Reason", min_length=WHY_MIN, max_length=WHY_MAX, help_text="Recorded in the audit log.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip


class ReasonForm(forms.Form):
    """A reason and nothing else: for deletes, and what is done with one button."""

    why = reason_field()


def reason(request: HttpRequest) -> str:
    """Returns the reason that was sent with the request. Raises ValidationError."""
    form = ReasonForm(request.POST)
    if not form.is_valid():
        raise ValidationError([words for each in form.errors.values() for words in each])
    return str(form.cleaned_data["why"])


class AuditedAdmin(ModelAdmin):  # type: ignore[type-arg]
    """An administration page whose changes are audited. ``action`` is the prefix of the audit action: user.add,
    user.change, user.delete."""

    action = ""
    title = ""
    explanation = ""
    actions = None
    list_per_page = 100
    show_full_result_count = False
    save_on_top = False
    view_on_site = False
    may_add = may_change = may_delete = False

    def _may(self, request: HttpRequest) -> bool:
        role = role_of(request.user)
        return role is not None and role >= Role.ADMINISTRATOR

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Returns whether the user is an administrator."""
        return self._may(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Returns whether the user is an administrator."""
        return self._may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Returns whether an administrator may add objects here."""
        return self.may_add and self._may(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Returns whether an administrator may change objects here."""
        return self.may_change and self._may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Returns whether an administrator may delete objects here."""
        return self.may_delete and self._may(request)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Returns the object with this key, or None. An empty ``_to_field`` in the address counts as absent: Django
        would look for a field of that name."""
        return super().get_object(request, object_id, from_field or None)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Refuses every lookup, as nothing is filtered here; Django would accept any field in the address, and numbers
        too large for the database."""
        return False

    def get_urls(self) -> list[URLPattern]:
        """Returns the addresses of the pages, without those that add or delete when that is not permitted, and without
        Django's obsolete redirects."""
        gone = ("_add",) * (not self.may_add) + ("_delete",) * (not self.may_delete)
        return [each for each in super().get_urls() if each.name and not each.name.endswith(gone)]

    def subject(self, obj: Any) -> str:
        """Returns the name of the object in the audit."""
        return str(obj)

    def described(self, obj: Any) -> dict[str, Any]:
        """Returns what the audit records of the object before and after a change."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Stores the object and remembers its state before the change."""
        form.before = self.described(self.model._default_manager.get(pk=obj.pk)) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Finishes the change and records it in the audit."""
        super().save_related(request, form, formsets, change)
        self.finish(request, form.instance, form)
        after = self.described(self.model._default_manager.get(pk=form.instance.pk))
        record(
            request, f"{self.action}.{'change' if change else 'add'}", self.subject(form.instance),
            before=form.before, after=after, why=form.cleaned_data["why"],
        )  # fmt: skip

    def finish(self, request: HttpRequest, obj: Any, form: Any) -> None:
        """Stores values that are not fields of the model."""

    def refusal(self, request: HttpRequest, obj: Any) -> str:
        """Returns why the object cannot be deleted, or ""."""
        return ""

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Refuses a deletion without a reason, and one that ``refusal`` rejects."""
        if request.method == "POST":
            obj = self.get_object(request, object_id)
            try:
                reason(request)
                if obj is not None and (words := self.refusal(request, obj)):
                    raise ValidationError(words)
            except ValidationError as error:
                messages.error(request, " ".join(error.messages))
                return redirect(request.path)
        answer: HttpResponse = super().delete_view(
            request, object_id, {"reason_form": ReasonForm(), **(extra_context or {})}
        )
        return answer

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Deletes the object and records it in the audit. Raises PermissionDenied if ``refusal`` rejects it."""
        subject, before = self.subject(obj), self.described(obj)
        if words := self.refusal(request, obj):  # checked again inside the transaction
            raise PermissionDenied(words)
        self.delete(obj)
        record(request, f"{self.action}.delete", subject, before=before, why=reason(request))

    deleted = "deleted"

    def delete(self, obj: Any) -> None:
        """Deletes the object itself."""
        obj.delete()

    def response_delete(self, request: HttpRequest, obj_display: str, obj_id: object) -> HttpResponse:
        """Reports the deletion and returns to the list."""
        messages.success(request, f"{obj_display}: {self.deleted}.")
        return redirect(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def message_user(self, request: HttpRequest, message: Any, *given: Any, **named: Any) -> None:
        """Shows a message as plain text: the portal does not show the links that Django puts into its messages."""
        super().message_user(request, html.unescape(strip_tags(str(message))), *given, **named)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Redirects to the audit, filtered by this object."""
        obj = self.get_object(request, object_id)
        if obj is None:
            return redirect("audit:entries")
        return redirect(f"{reverse('audit:entries')}?{urlencode({'subject': self.subject(obj)})}")

    def log_addition(self, *_: Any) -> None:  # type: ignore[override]
        """Does nothing: the addition is in the audit log."""

    def log_change(self, *_: Any) -> None:  # type: ignore[override]
        """Does nothing: the change is in the audit log."""

    def log_deletions(self, *_: Any) -> None:  # type: ignore[override]
        """Does nothing: the deletions are in the audit log."""
