"""Names of the passage of control operations over HTTP, which the portal serves and ``waypost --remote`` uses.

A request is a POST of JSON: ``{"arguments": {...}, "why": "..."}``; for ``inject`` the message follows behind the first line.
The answer has the frames of the control socket (``frames.Response``), so that both ways answer the same values.
"""

from __future__ import annotations

__all__ = ["FRAMES", "INJECT", "KEY_HEADER", "PATH"]

PATH = "/api/v1/control/"  # before the name of the operation
FRAMES = "application/vnd.waypost.frames"
INJECT = "inject"  # inject_begin, inject_data and inject_end as one request
KEY_HEADER = "Idempotency-Key"
