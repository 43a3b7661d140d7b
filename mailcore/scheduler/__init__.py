"""The scheduler: decides which mail is delivered next. Pure, without clock or I/O (decision 0003)."""

from mailcore.scheduler.destinations import WindowChange
from mailcore.scheduler.entry import Deferral, Entry
from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.scheduler.scheduler import Scheduler

__all__ = ["Deferral", "Entry", "Parameters", "Scheduler", "TransportParameters", "WindowChange"]
