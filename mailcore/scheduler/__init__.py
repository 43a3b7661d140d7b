"""Who is delivered next: pure, without clock or I/O (DESIGN section 4)."""

from mailcore.scheduler.job import Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

__all__ = ["Entry", "Parameters", "Scheduler", "TransportParameters"]
