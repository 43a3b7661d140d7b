"""`waypost lab`: a set of fake SMTP servers with scripted behaviour, for demos, tests and benchmarks.

Nothing in here is part of the mail path, and nothing in here knows the rest of mailcore: what judges a relay must not
share its code.
"""

from mailcore.lab.arrival import Arrival
from mailcore.lab.behaviour import BehaviourError
from mailcore.lab.lab import Lab

__all__ = ["Arrival", "BehaviourError", "Lab"]
