"""``waypost node``: shows the nodes, and takes one out of service and back (docs/nodes.md)."""

from __future__ import annotations

import argparse

from mailcore.cli.node_drain import add_drain_commands

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_drain_commands(parser.add_subparsers(metavar="COMMAND", required=True))
