"""The Authentication-Results field (RFC 8601): written with our identifier.

Law: a value of a message or of the DNS cannot end the field or begin another result.

Keeps law: forged-results-removed (docs/laws.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mailcore.authenticity.arc import ArcResult
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.dmarc import DmarcResult
from mailcore.authenticity.spf import SpfResult

__all__ = ["results_value"]

VALUE_CHARACTERS_MAX = 256
_TOKEN = re.compile(r"[A-Za-z0-9!#$&'*+._^`{|}~-]+")
_MAILBOX = re.compile(r"[A-Za-z0-9!#$&'*+._^`{|}~=/?%-]*@[A-Za-z0-9._-]+")
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
