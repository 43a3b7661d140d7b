"""The scheduler of Celery: the schedules in the database are those of all nodes, and each node keeps to them.

Law: what one node started does not count at another: each makes its own report, and a scheduler that is dead is seen at its
node.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry

from appliance.common.node import own_node
from appliance.reports.models import Started
from appliance.reports.schedules import last_starts

__all__ = ["NodeEntry", "NodeScheduler"]


class NodeEntry(ModelEntry):  # type: ignore[misc]
    """One schedule at this node."""

    def save(self) -> None:
        """Stores when this node started it; in the row of the schedule, too, for an earlier release."""
        super().save()
        if own_node():
            Started.objects.update_or_create(
                node=own_node(), name=self.model.name, defaults={"at": self.model.last_run_at}
            )


class NodeScheduler(DatabaseScheduler):  # type: ignore[misc]
    """Starts tasks by what this node has started."""

    Entry = NodeEntry

    def enabled_models(self) -> list[Any]:
        """Returns the schedules with the last starts of this node. A node that is new starts with the next time."""
        tasks = super().enabled_models()
        starts, now = last_starts(tasks), datetime.now(UTC)
        for task in tasks:
            task.last_run_at = starts[task.name] or (now if own_node() else None)  # None: Celery takes its making
        return list(tasks)
