"""A value of a parameter in a template, as a person would type it."""

from __future__ import annotations

from django import template

from appliance.tuning.value import Value, typed

register = template.Library()


@register.filter(name="typed")
def as_typed(value: Value) -> str:
    """Returns a value as a user would type it."""
    return typed(value)
