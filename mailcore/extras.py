"""The optional parts of the installation, and what to say when one of them is missing.

``pyproject.toml`` names their packages under ``[project.optional-dependencies]``; for Debian they are the package
waypost-reports. A host without reports does without Spark and its Java, some 700 MB. This file imports nothing of ours, so that
every room can import it.
"""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["missing"]

# extra -> the module by which it is recognised, and what needs it
_EXTRAS = {"reports": ("pyspark", "Reports"), "charts": ("matplotlib", "Charts")}
PACKAGED = "/usr/lib/waypost/venv"  # of the Debian package: pip has nothing to do there
PACKAGE = "waypost-reports"  # it has matplotlib, too


def missing(extra: str) -> str:
    """Returns a sentence that says how to install the extra, or "" if it is installed. Imports nothing."""
    module, users = _EXTRAS[extra]
    if importlib.util.find_spec(module) is not None:
        return ""
    if sys.prefix == PACKAGED:
        return f"{users} need the package {PACKAGE}: apt install {PACKAGE}, or apt install ./{PACKAGE}_VERSION.deb"
    return f"{users} need the extra '{extra}': pip install 'waypost[{extra}]'"
