"""Pages as a browser reads them: where a template breaks its lines makes no difference to a test."""

from __future__ import annotations

import re
from typing import Any

_TABLES = "td|th|tr|thead|tbody|tfoot|table|caption"
_BLOCKS = f"(?:{_TABLES}|p|div|section|li|ul|ol|dl|dt|dd|h[1-6]|form|nav|details|summary|option|select)"


def markup_of(response: Any) -> str:
    """Returns the HTML of a response as ``collapsed`` does."""
    return collapsed(response.content.decode())


def collapsed(html: str) -> str:
    """Returns HTML in which each run of white space is one space, and none stands at the edges of a block."""
    text = re.sub(r"[ \t\n]+", " ", html)
    text = re.sub(rf" ?(</?{_BLOCKS}\b[^<>]*>) ?", r"\1", text)
    return re.sub(r" (>|\"[ >])", r"\1", text)
