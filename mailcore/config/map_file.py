"""The name of a map file in the settings: a path, where Postfix has a type and a path. Pure."""

from __future__ import annotations

from mailcore.bounds import bad

__all__ = ["INDEXED", "REGEXP", "map_file", "map_or_pattern_file", "pattern_file", "route_file"]

REGEXP = "regexp:"  # before the path of a file of regular expressions
INDEXED = ("hash", "btree", "lmdb", "cdb", "dbm", "sdbm", "texthash")  # types of Postfix that have a source
PATTERNS = ("regexp", "pcre")
OTHERS = (  # types of Postfix without a file that is read here
    "cidr", "environ", "fail", "inline", "internal", "ldap", "memcache", "mongodb", "mysql", "netinfo", "nis", "nisplus",
    "pgsql", "pipemap", "randmap", "socketmap", "sqlite", "static", "tcp", "unionmap", "unix",
)  # fmt: skip


def map_file(given: str) -> str:
    """Returns the path of a file with a key at the beginning of each line. Raises BadValue, also for a type of Postfix."""
    return _checked(given, "must be the path of a file with addresses; patterns are not read here")


def pattern_file(given: str) -> str:
    """Returns the path of a file of patterns. Raises BadValue, also for a type of Postfix before it."""
    return _checked(given, "must be the path of a text file: write {path!r}, without the type")


def route_file(given: str) -> str:
    """Returns the path of a file of routes. Raises BadValue, also for a type of Postfix."""
    return _checked(given, "must be the path of a file with a pattern and a route in each line, no expressions")


def map_or_pattern_file(given: str) -> str:
    """Returns the path of a map, which has regexp: before it if it is a file of patterns. Raises BadValue."""
    if given.startswith(REGEXP) and given != REGEXP:
        return given
    return _checked(given, f"must be the path of a text file: write '{REGEXP}{{path}}' for a file of patterns")


def _checked(given: str, patterns: str) -> str:
    """Returns the path. ``patterns`` says what to do with the types of patterns."""
    kind, colon, path = given.removeprefix("proxy:").partition(":")
    if colon and kind in INDEXED:
        raise bad(given, f"must be the path of a text file: write {path!r}, the source that postmap reads")
    if colon and kind in PATTERNS and path:
        raise bad(given, patterns.format(path=path))
    if (colon and kind in OTHERS) or given.startswith("proxy:"):
        raise bad(
            given, "must be the path of a text file: write the entries of this table to a file, and name that file"
        )
    if not given.removeprefix(REGEXP):
        raise bad(given, "must be the path of a file")
    return given
