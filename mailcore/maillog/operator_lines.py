"""The lines of the mail log about what operators do, and about the windows of destinations."""

from __future__ import annotations

from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, word

__all__ = ["OperatorLines"]


class OperatorLines(Lines):
    """A part of ``MailLog``."""

    def administered(self, queue_id: str, operation: str, who: str, why: str) -> None:
        """Logs an operator's change of a message: delete, undelete, hold, release, delay, reroute, bounce, add recipients."""
        self._line("postsuper", f"{queue_id}: {word(operation)} by {word(who) or 'unknown'} ({free(why)})")
        self._object("administered", queue_id=queue_id, operation=operation, who=who, why=why)

    def tuned(self, scope: str, parameter: str, value: object, who: str, why: str, until: float | None = None) -> None:
        """Logs that an operator set a parameter, for good or until a time, or suspended or resumed a destination."""
        name = f"{word(scope)} {word(parameter)}".strip()
        written = word(value) if isinstance(value, str) else value
        end = "" if until is None else f" until {until:.0f}"
        self._line("qmgr", f"tuned: {name} = {written}{end} by {word(who) or 'unknown'} ({free(why)})")
        self._object("tuned", scope=scope, parameter=parameter, value=value, until=until, who=who, why=why)

    def tuned_ended(self, scope: str, parameter: str, value: object, until: float | None, holds: object) -> None:
        """Logs that an override has expired; ``holds`` is the value in force now, None after a suspension."""
        name = f"{word(scope)} {word(parameter)}".strip()
        self._line("qmgr", f"tuned: {name} = {value} expired" + ("" if holds is None else f"; now {holds}"))
        self._object("tuned_ended", scope=scope, parameter=parameter, value=value, until=until, holds=holds)

    def tuned_ignored(self, place: str, what: str) -> None:
        """Logs a value of tuned.toml that is not in force. ``place``: the file and its line."""
        self._warning("qmgr", f"{word(place)}: {free(what)}")
        self._object("tuned_ignored", place=place, what=what)

    def window_changed(
        self, destination: str, limit: int, window: int, success: float, failure: float, fail_cohorts: float
    ) -> None:
        """Logs the feedback of a delivery (destination_concurrency_feedback_debug); a window of 0 is a dead destination."""
        counts = f"success {success:g} failure {failure:g} fail_cohorts {fail_cohorts:g}"
        self._line("qmgr", f"window: queue {word(destination)}: limit {limit} window {window} {counts}")
        self._object(
            "window_changed", destination=destination, limit=limit, window=window, success=success, failure=failure,
            fail_cohorts=fail_cohorts,
        )  # fmt: skip
