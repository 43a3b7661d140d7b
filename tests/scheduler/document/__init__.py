"""The scheduler as seed 002 tells it, paragraph by paragraph: slow, plain, and what the real one is held against.

Everything is a list that is walked from its head; nothing is kept that can be counted. It shares no code with
mailcore.scheduler.
"""

from tests.scheduler.document.model import Model

__all__ = ["Model"]
