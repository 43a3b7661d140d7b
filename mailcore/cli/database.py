"""Asks the database of [nodes] for a command, whether Waypost runs here or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mailcore.config.settings import Settings
from mailcore.faults import FaultError
from mailcore.nodes.parameters import parameters_of
from mailcore.replication.connection import Connection
from mailcore.replication.faults import StoreError
from mailcore.replication.schema import check_schema
from mailcore.terminal.command import DONE, NOT_DONE, NOT_RUNNING, UsageError
from mailcore.terminal.output import complain_fault

__all__ = ["asked"]

_Result = TypeVar("_Result")


def asked(settings: Settings, command: str, work: Callable[[Connection], _Result]) -> tuple[int, _Result | None]:
    """Returns the exit status, and what ``work`` returned with a connection. NOT_RUNNING: the database does not answer."""
    if not settings.nodes.is_on:
        raise UsageError(f"{command}: no database keeps this queue; set database in [nodes]")
    try:
        connection = Connection.open(parameters_of(settings))
        try:
            check_schema(connection)
            return DONE, work(connection)
        finally:
            connection.close()
    except StoreError as error:
        complain_fault(error.fault)
        return NOT_RUNNING, None
    except FaultError as error:
        complain_fault(error.fault)
        return NOT_DONE, None
    except OSError as error:
        raise UsageError(f"[nodes] password_file: {error.strerror or error}") from None
