"""The Celery application: runs ``appliance.reports.tasks``, woken through Redis.

Redis only wakes the worker; all state is in the portal's database. A lost message is sent again within a minute, and a
duplicate has no effect.
"""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

from celery import Celery
from celery.signals import beat_embedded_init

__all__ = ["app"]

_PR_SET_PDEATHSIG = 1  # prctl(2)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
app = Celery("waypost")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["appliance.reports"])


@beat_embedded_init.connect  # type: ignore[untyped-decorator]
def _end_with_the_worker(**_: Any) -> None:
    """Ends the scheduler with its worker: otherwise it would start tasks in addition to the scheduler of the next
    worker."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(0)
