"""The Authentication-Results field (RFC 8601): written with our identifier, and found in mail where others wrote it.

Law: a value of a message or of the DNS cannot end the field, begin another result or stand for our identifier.

Keeps law: forged-results-removed (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mailcore.authenticity.arc import ArcResult
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.dmarc import DmarcResult
from mailcore.authenticity.spf import SpfResult
from mailcore.routing.address import a_labels

__all__ = ["NAME", "claims", "results_value"]

NAME = b"Authentication-Results"
VALUE_CHARACTERS_MAX = 256
_TOKEN = re.compile(r"[A-Za-z0-9!#$&'*+._^`{|}~-]+")
_MAILBOX = re.compile(r"[A-Za-z0-9!#$&'*+._^`{|}~=/?%-]*@[A-Za-z0-9._-]+")
_ENDS_IDENTIFIER = " \t\r\n/=@,:<>[]"  # the grammar has only the first four, but a careless reader may stop at any
_UNSAFE = re.compile(r"[^ -~]")
_QUOTED_PAIR = re.compile(r'(["\\])')


def results_value(
    authserv_id: str,
    spf: Sequence[tuple[str, SpfResult, str]],
    signatures: Sequence[DkimResult],
    arc: ArcResult,
    dmarc: DmarcResult,
) -> bytes:
    """Returns the value of the field, a line for each result.

    ``spf``: the property, such as "smtp.mailfrom", its result and its value.
    """
    lines = []
    for identity, result, value in spf:
        lines.append(f"spf={result.result}{_reason(result.reason)} {identity}={_value(value)}")
    for each in signatures:
        properties = [("header.d", each.domain), ("header.s", each.selector), ("header.a", each.algorithm)]
        shown = "".join(f" {name}={_value(value)}" for name, value in properties if value)
        if each.beginning:
            shown += f' header.b="{_quoted(each.beginning)}"'
        lines.append(f"dkim={each.result}{_reason(each.reason)}{shown}")
    if not signatures:
        lines.append("dkim=none")
    if arc.result != "none":
        shown = f" header.d={_value(arc.domain)}" if arc.domain else ""
        lines.append(f"arc={arc.result}{_reason(arc.reason)} (i={arc.sets}){shown}")
    policy = f" (p={dmarc.published} applied={dmarc.policy})" if dmarc.published else ""
    author = f" header.from={_value(dmarc.domain)}" if dmarc.domain else ""
    lines.append(f"dmarc={dmarc.result}{policy}{_reason(dmarc.reason)}{author}")
    return ";\r\n\t".join([_value(authserv_id), *lines]).encode("ascii")


def _reason(text: str) -> str:
    return f' reason="{_quoted(text)}"' if text else ""


def _value(text: str) -> str:
    text = _UNSAFE.sub("?", text[:VALUE_CHARACTERS_MAX])
    return text if _TOKEN.fullmatch(text) or _MAILBOX.fullmatch(text) else f'"{_quoted(text)}"'


def _quoted(text: str) -> str:
    return _QUOTED_PAIR.sub(r"\\\1", _UNSAFE.sub("?", text[:VALUE_CHARACTERS_MAX]))


def claims(field: bytes, authserv_id: str) -> bool:
    """Returns whether an Authentication-Results field is, or may be read as, one with our identifier.

    Comments, folding, quotes, a version, upper case, a final dot and U-labels hide nothing. A field whose identifier cannot
    be read is taken for ours: some reader might read it so.
    """
    value = field.partition(b":")[2].decode("utf-8", "replace").replace("\0", "")
    found = _first_word(value)
    return found is None or _comparable(found) == _comparable(authserv_id)


def _first_word(text: str) -> str | None:
    """Returns the identifier; None if the grammar is broken."""
    word = ""
    at, depth = 0, 0
    while at < len(text):
        character = text[at]
        if depth:
            depth += (character == "(") - (character == ")")
            at += 2 if character == "\\" else 1
        elif character == "(":
            depth = 1
            at += 1
        elif character in _ENDS_IDENTIFIER:
            if word:
                return word
            at += 1
        elif character == ";":
            break
        elif character == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 1 if text[end] == "\\" else 0
                word += text[end : end + 1]
                end += 1
            at = end + 1
            if end >= len(text):
                return None
        else:
            word += character
            at += 1
    return word if word and not depth else None


def _comparable(identifier: str) -> str:
    identifier = identifier.strip().removesuffix(".").lower()
    try:
        return a_labels(identifier) or identifier
    except UnicodeError:
        return identifier
