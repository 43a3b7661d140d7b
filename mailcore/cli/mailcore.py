"""``waypost mailcore``: the appliance in the foreground, until it is killed."""

from __future__ import annotations

import argparse

from mailcore.cli.command import add_common, config_path
from mailcore.config import load
from mailcore.process import supervisor

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return supervisor.main(load(config_path(arguments)))
