"""The scheduler of Postfix's SCHEDULER_README, paragraph by paragraph: slow and plain; the real one is compared with it.

Everything is a list that is walked from its head; nothing is kept that can be counted. It shares no code with
mailcore.scheduler.
"""

from tests.scheduler.document.model import Model

__all__ = ["Model"]
