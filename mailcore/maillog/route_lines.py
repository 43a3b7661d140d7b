"""The lines of the mail log about the files of [route_maps]."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free

__all__ = ["RouteLines"]


class RouteLines(Lines):
    """A part of ``MailLog``."""

    def routes_read(self, files: int, routes: int, fallbacks: int) -> None:
        """Logs that the files of [route_maps] changed, and are in use.

        ``routes`` and ``fallbacks``: with those of the configuration file.
        """
        more = f", {counted(fallbacks, 'fallback')}" if fallbacks else ""
        self._line("trivial-rewrite", f"route_maps: {counted(files, 'file')} in use, {counted(routes, 'route')}{more}")
        self._object("routes_read", files=files, routes=routes, fallbacks=fallbacks)

    def routes_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs the faults of these files. ``in_use``: the routes that were read before; otherwise mail waits."""
        then = "the routes read before stay in use" if in_use else "mail waits"
        for fault in faults:
            self._warning("trivial-rewrite", f"route_maps: {free(fault)}; {then}")
        self._object("routes_refused", why="; ".join(faults), in_use=in_use)
