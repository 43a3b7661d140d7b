"""A what-if while it runs: progress a line at a time, then the number of the prediction that was stored.

    {"progress": 0.3, "stage": "before"} ... {"prediction": 17}     or {"error": "..."} at any time

Laws: it lives as long as its reader: when the browser leaves, the connection to the core is closed, and the core ends the
simulation. Nothing is kept of one that did not end. Of those that were never applied a few are kept for a while.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from appliance.common.door import async_door
from appliance.tuning.models import Prediction
from mailcore.control.client import ControlError

__all__ = ["KEPT", "KEPT_S", "running", "store"]

PATIENCE_S = 30.0  # for each part: the core sends one twice a second, but it measures first
KEPT = 20  # predictions of a person that nothing came of
KEPT_S = 86_400
SERIES = ("t", "backlog", "window")  # the series of the charts


async def running(user: User, changes: list[dict[str, Any]], asked: dict[str, Any]) -> AsyncIterator[str]:
    """The lines. Ends with its reader."""
    try:
        async with (
            async_door(user.get_username(), PATIENCE_S) as core,
            contextlib.aclosing(core.parts("simulate", {"changes": changes, **asked})) as parts,
        ):
            async for part in parts:
                if part.get("done"):
                    stored = await sync_to_async(store)(user, changes, asked, part)
                    yield _line(prediction=stored.pk)
                else:
                    yield _line(progress=part.get("progress", 0), stage=part.get("stage", ""))
    except ControlError as error:
        yield _line(error=str(error))


def store(user: User, changes: list[dict[str, Any]], asked: dict[str, Any], answer: dict[str, Any]) -> Prediction:
    """Keeps it, and forgets older ones of the same person that were never applied."""
    made = Prediction.objects.create(
        user=user,
        changes=changes,
        asked=asked,
        before=_kept(answer["before"], asked),
        after=_kept(answer["after"], asked),
        assumptions=list(answer.get("assumptions", ())),
        unread_files=answer.get("unread_files", 0),
    )
    unused = Prediction.objects.filter(taken=None)
    unused.filter(at__lt=timezone.now() - timedelta(seconds=KEPT_S)).delete()
    mine = list(unused.filter(user=user).values_list("pk", flat=True)[KEPT:])
    unused.filter(pk__in=mine).delete()
    return made


def _kept(result: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    series = dict(result.get("series", {}))
    if not asked.get("arrivals") and not result.get("bounced") and "delivered" in series:
        # The simulator counts deferred mail when it is due; a person means all that has not been delivered yet.
        total = result.get("delivered", 0) + result.get("waiting", 0)
        series["backlog"] = [max(0, total - done) for done in itertools.accumulate(series["delivered"])]
    return {**result, "series": {name: series[name] for name in SERIES if name in series}}


def _line(**values: Any) -> str:
    return json.dumps(values) + "\n"
