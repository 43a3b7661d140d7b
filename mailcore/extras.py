"""The optional parts of the installation, and what to say when one of them is missing.

``pyproject.toml`` names their packages under ``[project.optional-dependencies]``; for Debian they are the package
waypost-reports. A host without reports does without Spark and its Java, some 700 MB. This file imports nothing of ours, so that
every room can import it.
"""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["missing"]

# extra -> the module by which it is recognised, what needs it, and the Debian package that has it
_EXTRAS = {
    "reports": ("pyspark", "Reports", "waypost-reports"),
    "charts": ("matplotlib", "Charts", "waypost-reports"),
    "nodes": ("psycopg", "Several nodes", "waypost"),
}
PACKAGED = "/usr/lib/waypost/venv"  # of the Debian package: pip has nothing to do there


def missing(extra: str) -> str:
    """Returns a sentence that says how to install the extra, or "" if it is installed. Imports nothing."""
    module, users, package = _EXTRAS[extra]
    if importlib.util.find_spec(module) is not None:
        return ""
    if sys.prefix == PACKAGED:
        return f"{users} need the package {package}: apt install {package}, or apt install ./{package}_VERSION.deb"
    return f"{users} need the extra '{extra}': pip install 'waypost[{extra}]'"
