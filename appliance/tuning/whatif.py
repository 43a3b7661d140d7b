"""A what-if while it runs: progress a line at a time, then the number of the prediction that was stored.

    {"progress": 0.3, "stage": "before"} ... {"prediction": 17}     or {"error": "..."} at any time

Laws: it lives as long as its reader: when the browser leaves, the connection to the core is closed, and the core ends the
simulation. Nothing is kept of one that did not end. Of those that were never applied a few are kept for a while.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from appliance.common.door import async_door
from appliance.tuning.models import Prediction
from mailcore.control.client import ControlError
from mailcore.control.protocol.tuning import SimulatePart, SimulationResult

__all__ = ["KEPT", "KEPT_S", "running", "store"]

PATIENCE_S = 30.0  # for each part: the core sends one twice a second, but it measures first
KEPT = 20  # predictions of a person that nothing came of
KEPT_S = 86_400
SERIES = ("t", "backlog", "window", "transports")  # the series of the charts


async def running(user: User, changes: list[dict[str, Any]], asked: dict[str, Any]) -> AsyncIterator[str]:
    """Yields the lines of JSON. The simulation ends when its reader goes away."""
    try:
        async with (
            async_door(user.get_username(), PATIENCE_S) as core,
            contextlib.aclosing(core.ask_parts("simulate", SimulatePart, {"changes": changes, **asked})) as parts,
        ):
            async for part in parts:
                if part.done:
                    stored = await sync_to_async(store)(user, changes, asked, part)
                    yield _line(prediction=stored.pk)
                else:
                    yield _line(progress=part.progress, stage=part.stage)
    except ControlError as error:
        yield _line(error=str(error))


def store(user: User, changes: list[dict[str, Any]], asked: dict[str, Any], answer: SimulatePart) -> Prediction:
    """Keeps it, and forgets older ones of the same person that were never applied."""
    made = Prediction.objects.create(
        user=user,
        changes=changes,
        asked=asked,
        before=_kept(answer.before),
        after=_kept(answer.after),
        unknown=msgspec.to_builtins(answer.unknown),
        assumptions=answer.assumptions,
        unread_files=answer.unread_files,
    )
    unused = Prediction.objects.filter(taken=None)
    unused.filter(at__lt=timezone.now() - timedelta(seconds=KEPT_S)).delete()
    mine = list(unused.filter(user=user).values_list("pk", flat=True)[KEPT:])
    unused.filter(pk__in=mine).delete()
    return made


def _kept(result: SimulationResult | None) -> dict[str, Any]:
    assert result is not None, "the last part of a simulation has results"
    kept: dict[str, Any] = msgspec.to_builtins(result)
    return kept | {"series": {name: kept["series"][name] for name in SERIES}}


def _line(**values: Any) -> str:
    return json.dumps(values) + "\n"
