"""``waypost metrics``: prints what a monitoring system reads, as Prometheus text."""

from __future__ import annotations

import argparse
import sys

from mailcore.metrics.asking import Asking
from mailcore.metrics.exposition import text_of
from mailcore.terminal.command import DONE, add_common, settings_of
from mailcore.terminal.output import print_json

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    parser.epilog = (
        "docs/metrics.md explains each metric. With [metrics] listen, the same text is at http://ADDRESS/metrics."
    )
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    families = Asking(settings_of(arguments)).families()
    if arguments.json:
        print_json({family.name: family for family in families if family.samples})
    else:
        sys.stdout.write(text_of(families))
    return DONE
