"""``waypost check-config``: prints the settings in use, or every error with its line (exit status 2)."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from mailcore.config.load import ConfigError, load
from mailcore.faults import Code, Fault
from mailcore.terminal.command import DONE, WRONG_USE, add_common, config_path
from mailcore.terminal.output import complain_fault, plain, print_json, say

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this command to ``parser``."""
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    path = config_path(arguments)
    try:
        settings = load(path)
    except ConfigError as error:
        faults = str(error).splitlines()
        if arguments.json:
            print_json({"valid": False, "file": str(path), "faults": [plain(fault) for fault in faults]})
        for fault in faults:
            complain_fault(Fault(Code.INVALID, fault))
        return WRONG_USE
    values: dict[str, Any] = dataclasses.asdict(settings, dict_factory=_strings_for_paths)
    if arguments.json:
        print_json({"valid": True, "file": str(path), "settings": values})
        return DONE
    say(f"# {path} is valid. All settings, including defaults:")
    _say_table("", values)
    return DONE


def _strings_for_paths(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, bool | int | float | dict | tuple | str) else str(value)
        for name, value in pairs
    }


def _say_table(name: str, values: dict[str, Any]) -> None:
    """Prints a table as TOML, so that lines can be copied into the file."""
    if name and (not values or any(not isinstance(value, dict) for value in values.values())):
        say(f"\n[{name}]")
    for key, value in values.items():
        if not isinstance(value, dict):
            say(f"{_key(key)} = {_toml(value)}")
    for key, value in values.items():
        if isinstance(value, dict):
            _say_table(f"{name}.{_key(key)}" if name else _key(key), value)


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    return json.dumps(value)
