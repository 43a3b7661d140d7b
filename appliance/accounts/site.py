"""The administration: Django's admin in the portal's layout, for administrators only, and never for the queue.

Law: each change needs a reason and is audited (``audited_admin``).
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver
from django.utils.decorators import method_decorator

from appliance.accounts.roles import Role, role_of

__all__ = ["PortalAdmin"]

# Signing in and the own password have their pages in accounts/; the rest is for parts of the admin that are not used.
_NOT_HERE = frozenset(
    ("logout", "password_change", "password_change_done", "autocomplete", "jsi18n", "view_on_site", "app_list")
)


class PortalAdmin(AdminSite):
    """The administration pages, in the portal's layout and with its sign-in."""

    site_title = site_header = "Administration"
    final_catch_all_view = False
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        """Returns whether the user is an administrator."""
        role = role_of(request.user)
        return role is not None and role >= Role.ADMINISTRATOR

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """Redirects to the sign-in page without a session; answers 403 to users who are not administrators."""
        inner = super().admin_view(view, cacheable)

        def checked(request: HttpRequest, *arguments: Any, **named: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path(), redirect_field_name=REDIRECT_FIELD_NAME)
            if not self.has_permission(request):
                raise PermissionDenied("permission denied: requires the role administrator")
            answer: HttpResponse = inner(request, *arguments, **named)
            return answer

        checked.least_role = Role.ADMINISTRATOR  # type: ignore[attr-defined]
        return checked

    @method_decorator(login_not_required)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Redirects to the portal's page for signing in, which is the only one."""
        return redirect_to_login(request.GET.get(REDIRECT_FIELD_NAME, ""))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Returns an empty list: the index page has a list of its own."""
        return []

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Returns Django's pages without those that the portal replaces."""
        return [each for each in super().get_urls() if getattr(each, "name", None) not in _NOT_HERE]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Renders the list of the administration pages with an explanation of each."""
        rooms = [
            {"title": getattr(each, "title", ""), "url": f"admin:{each.opts.app_label}_{each.opts.model_name}_changelist",
             "explanation": getattr(each, "explanation", "")}
            for each in self._registry.values()
        ]  # fmt: skip
        return super().index(request, {"rooms": rooms, **(extra_context or {})})
