"""A value of a parameter in a template, as a person would type it or reads it."""

from __future__ import annotations

from django import template

from appliance.tuning.value import Value, readable, typed

register = template.Library()


@register.filter(name="typed")
def as_typed(value: Value) -> str:
    """Returns a value as a user would type it."""
    return typed(value)


@register.filter(name="readable")
def as_read(value: Value, parameter: str) -> str:
    """Returns the value of a parameter as a person reads it: 5 days."""
    return readable(parameter, value)
