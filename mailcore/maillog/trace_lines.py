"""The lines of the mail log about traces."""

from __future__ import annotations

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["TraceLines"]


class TraceLines(Lines):
    """A part of ``MailLog``."""

    def collector_failed(self, collector: str, why: str) -> None:
        """Logs that the collector of traces takes nothing; once, until it answers."""
        self._warning("tracer", f"collector {word(collector)}: {free(why)}; traces wait, mail does not")
        self._object("collector_failed", collector=collector, why=why)

    def collector_answers(self, collector: str) -> None:
        """Logs that it takes spans again."""
        self._line("tracer", f"collector {word(collector)} answers again")
        self._object("collector_answers", collector=collector)

    def spans_rejected(self, collector: str, spans: int, why: str) -> None:
        """Logs that the collector refused spans for good."""
        self._warning("tracer", f"collector {word(collector)} rejected {counted(int(spans), 'span')}: {free(why)}")
        self._object("spans_rejected", collector=collector, spans=spans, why=why)

    def traces_lost(self, lane: str, lost_bytes: int) -> None:
        """Logs that a part of the log was deleted before its spans were sent."""
        self._warning(
            "tracer", f"{int(lost_bytes)} bytes of {word(lane)} were deleted before they were read; traces lack them"
        )
        self._object("traces_lost", lane=lane, bytes=lost_bytes)

    def traces_failed(self, why: str) -> None:
        """Logs a fault that keeps the tracer from reading; it tries again."""
        self._warning("tracer", f"traces: {free(why)}")
        self._object("traces_failed", why=why)
