"""Fills in what a message says to each of its recipients: ``{{ name }}`` in subject, header fields, text and HTML.

Laws
- No value becomes more than it is: a line end cannot get into a field, and HTML gets a value as text.
- A place that a recipient has no value for is an error before anything is queued. Other text stays as it is.

Pure: no I/O.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from appliance.api.bodies import one_line
from appliance.api.composing import VARIABLE, MessageBody
from appliance.api.errors import ApiError

__all__ = ["check_variables", "filled"]

_PLACE = re.compile(r"\{\{ ?(" + VARIABLE.pattern + r") ?\}\}")


def check_variables(body: MessageBody) -> None:
    """Raises ApiError unless each recipient has a value for each place, and every value is for a recipient."""
    variables = body.variables or {}
    if body.raw is not None:
        raise ApiError("raw and variables: one of them is allowed", argument="variables")
    for address in variables:
        if address not in body.recipients:
            raise ApiError(
                f"variables.{address}: it is not among the recipients", argument=f"variables.{address}"[:200]
            )
    in_lines = {name for text in _lines(body) for name in _PLACE.findall(text)}
    places = in_lines.union(*(_PLACE.findall(text) for text in (body.text or "", body.html or "")))
    for at, recipient in enumerate(body.recipients):
        if body.to is None and not recipient.isascii():  # it would be found after others are queued
            place = f"recipients[{at}]"
            words = f"{place}: an address of a composed message is ASCII; hand in others as message/rfc822"
            raise ApiError(words, argument=place)
        values = variables.get(recipient, {})
        for name in sorted(places):
            place = f"variables.{recipient}.{name}"
            if name not in values:
                raise ApiError(
                    f"{place}: the message has a place for it, and this recipient has no value", argument=place[:200]
                )
            if name in in_lines:
                try:
                    one_line(values[name])
                except ValueError as error:
                    raise ApiError(f"{place}: {error} in a header field", argument=place[:200]) from error


def filled(body: MessageBody, recipient: str) -> MessageBody:
    """Returns the body as it is for one recipient. ``check_variables`` has accepted it."""
    values = (body.variables or {}).get(recipient, {})

    def fill(text: str | None) -> str | None:
        return None if text is None else _PLACE.sub(lambda place: values[place[1]], text)

    markup = None
    if body.html is not None:
        markup = _PLACE.sub(lambda place: html.escape(values[place[1]]), body.html)
    headers = None if body.headers is None else {name: fill(value) for name, value in body.headers.items()}
    return body.model_copy(
        update={
            "recipients": [recipient],
            "subject": fill(body.subject),
            "text": fill(body.text),
            "html": markup,
            "headers": headers,
            "variables": None,
        }
    )


def _lines(body: MessageBody) -> Iterator[str]:
    yield body.subject or ""
    yield from (body.headers or {}).values()
