"""Template tags of the settings pages: the kinds that have a page, for their navigation."""

from __future__ import annotations

from collections.abc import Sequence

from django import template

from appliance.common.templatetags.waypost import number
from appliance.managed.kinds import KINDS, MORE, Kind

__all__ = ["limit", "more_sections", "settings_kinds"]

register = template.Library()


@register.simple_tag
def settings_kinds() -> Sequence[Kind]:
    """Returns the kinds in their order."""
    return tuple(KINDS.values())


@register.simple_tag
def more_sections() -> Sequence[str]:
    """Returns the sections of the configuration file without a page of their kind."""
    return MORE


@register.filter
def limit(value: int | None, default: int) -> str:
    """Returns a user's limit in an hour, or that of all users; 0 is none."""
    found = default if value is None else value
    return number(found) if found else "no limit"
