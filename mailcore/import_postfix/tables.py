"""Reads Postfix's lookup tables and lists in plain text; for an indexed table, its source file.

Law: no file is read but those of the Postfix that was given: files below the directory of main.cf, or, if that is the copy of a
whole file system (COPY/etc/postfix), files below COPY. A file of this host with the same name may be that of another Postfix.
Only for a directory of this host's own Postfix, all files of this host are.

Types: texthash, and hash, btree, lmdb, cdb, dbm, sdbm by their source; inline; cidr for networks; any with ``proxy:``. Other
types (ldap, mysql, ...) and rules (regexp, pcre) are reported and not read.

Keeps law: a-copy-is-another-host (docs/laws.md).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mailcore.config.map_file import INDEXED
from mailcore.counted import counted
from mailcore.import_postfix.main_cf import logical_lines, split_list

__all__ = ["CONFIG_DIRECTORY", "Table", "TableFault", "Tables", "is_of_this_host", "networks_without"]

CONFIG_DIRECTORY = Path("/etc/postfix")  # Postfix's default of config_directory
SOURCE_BYTES_MAX = 64 << 20  # of one table; a million routes have 40 MB
_RULES = {"regexp": "regular expressions", "pcre": "regular expressions"}
_LIST_DEPTH_MAX = 5  # files named in files

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_of_this_host(directory: Path) -> bool:
    """Tells whether this is the directory of a Postfix of the host that runs the command, and not a copy.

    It is /etc/postfix, or the directory of another instance beside it, which postmulti(1) names postfix-NAME.
    """
    own, given = (Path(os.path.realpath(each)) for each in (CONFIG_DIRECTORY, directory))
    return given == own or (given.parent == own.parent and given.name.startswith(f"{own.name}-"))


class TableFault(Exception):
    """A table cannot be read. The message is for the operator."""


@dataclass(frozen=True)
class Table:
    """A lookup table: its name, entries and faults."""

    name: str  # as in main.cf
    entries: list[tuple[str, str, str]]  # key, value, place
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Tables:
    """Reads tables. ``directory``: that of main.cf; ``read``: returns the text of a file, or raises OSError.

    ``config_directory``: where main.cf lies according to Postfix; names of tables begin with it.
    """

    directory: Path
    read: Callable[[Path], str]
    config_directory: Path = CONFIG_DIRECTORY

    def path(self, name: str) -> Path:
        """Returns where the file or directory lies that main.cf names. Raises TableFault if it is not one of this Postfix."""
        if "\0" in name:
            raise TableFault(f"{name!a} is not the name of a file")
        directory = Path(os.path.abspath(self.directory))
        given = Path(os.path.normpath(name))
        top = self._top(directory)
        if not given.is_absolute():
            path = directory / given
        elif given.is_relative_to(directory):
            path = given
        elif top != directory:
            path = top / given.relative_to("/")
        elif given.is_relative_to(self.config_directory):
            path = directory / given.relative_to(self.config_directory)
        else:
            raise TableFault(
                f"{name} is outside of {directory} and is not read; copy it there, and change its name in main.cf"
            )
        # Not Path.resolve, which raises RuntimeError for a link that leads to itself; opening it gives an OSError.
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top)):
            raise TableFault(f"{name} leads out of {top} and is not read; replace the link by the file")
        return path

    def text(self, name: str) -> str:
        """Returns the text of a file that main.cf names. Raises TableFault."""
        path = self.path(name)
        try:
            return self.read(path)
        except OSError as error:
            raise TableFault(f"{path} cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise TableFault(f"{path} is not UTF-8") from None

    def _top(self, directory: Path) -> Path:
        """Returns the directory that holds all files of this Postfix: "/" for the Postfix of this host."""
        if is_of_this_host(directory):
            return Path("/")
        parts = self.config_directory.parts[1:]
        if parts and directory.parts[-len(parts) :] == parts:
            return Path(*directory.parts[: -len(parts)])
        return directory

    def table(self, name: str) -> Table:
        """Reads a table such as hash:/etc/postfix/transport. Raises TableFault."""
        kind, colon, rest = name.removeprefix("proxy:").partition(":")
        if not colon:
            kind, rest = "hash", kind  # default_database_type
        if kind == "inline":
            return Table(name, list(_inline(rest)))
        if kind in _RULES:
            raise TableFault(f"{_RULES[kind]} are not taken over{self._count(rest)}")
        if kind not in INDEXED:
            raise TableFault(f"tables of type {kind} are not read here")
        path = Path(rest)
        found = Table(name, [])
        for number, line in logical_lines(self.text(rest)):
            words = line.split(None, 1)
            if len(words) == 2:
                found.entries.append((words[0].lower(), words[1].strip(), f"{path.name}:{number}"))
            else:
                found.faults.append(f"{path.name}:{number}: {words[0]!a} has no value")
        return found

    def elements(
        self, words: list[str], unread: list[tuple[str, str]] | None = None, depth: int = 0
    ) -> Iterator[tuple[bool, str]]:
        """Yields (included, element) of a list such as mynetworks or relay_domains; ``!`` before an element excludes it.

        Lines of files and keys of tables are elements. Unreadable ones go to ``unread`` as (word, reason); without
        ``unread`` raises TableFault.
        """
        if depth > _LIST_DEPTH_MAX:
            raise TableFault("lists are nested too deeply")
        for given in words:
            try:
                yield from self._element(given, unread, depth)
            except TableFault as fault:
                if unread is None:
                    raise
                unread.append((given, str(fault)))

    def _element(self, given: str, unread: list[tuple[str, str]] | None, depth: int) -> Iterator[tuple[bool, str]]:
        true = not given.startswith("!")
        word = given.lstrip("!")
        if word.startswith("/"):
            lines = [line for _, line in logical_lines(self.text(word))]
            inner = [each for line in lines for each in split_list(line)]
            for so, element in self.elements(inner, unread, depth + 1):
                yield so is true, element
        elif _is_table(word):
            yield from ((true, key) for key in self._keys(word))
        else:
            yield true, word

    def _keys(self, name: str) -> list[str]:
        kind, _, rest = name.removeprefix("proxy:").partition(":")
        if kind == "cidr":
            lines = [line.split(None, 1) for _, line in logical_lines(self.text(rest))]
            if any(words[0] in ("if", "endif") or words[0].startswith("!") for words in lines):
                raise TableFault(f"{name} has conditions")
            return [words[0] for words in lines]
        return [key for key, _, _ in self.table(name).entries]

    def _count(self, path: str) -> str:
        try:
            rules = sum(1 for _ in logical_lines(self.text(path)))
        except TableFault:
            return ""
        return f" ({counted(rules, 'rule')} in {path})"


def networks_without(words: Iterator[tuple[bool, str]]) -> tuple[list[Network], list[str]]:
    """Returns the networks of a list without those excluded by ``!`` before them, and the faults."""
    found: list[Network] = []
    out: list[Network] = []
    faults: list[str] = []
    for true, word in words:
        try:
            network = _network(word)
        except ValueError:
            faults.append(f"{word!a} is not a network")
            continue
        if not true:
            out.append(network)
            continue
        left: list[Network] = [network]
        for hole in out:
            left = [each for part in left for each in _minus(part, hole)]
        found += [each for each in left if each not in found]
    return found, faults


def _network(word: str) -> Network:
    """Parses ``192.0.2.0/24``, ``[2001:db8::]/32`` or an address; mapped IPv4 (``[::ffff:127.0.0.0]/104``) is IPv4."""
    network = ipaddress.ip_network(word.replace("[", "").replace("]", ""))
    if isinstance(network, ipaddress.IPv6Network):
        mapped = network.network_address.ipv4_mapped
        if mapped is not None and network.prefixlen >= 96:
            return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _minus(network: Network, hole: Network) -> list[Network]:
    if network.version != hole.version or not network.overlaps(hole):
        return [network]
    if hole.supernet_of(network):  # type: ignore[arg-type]  # the same version
        return []
    return sorted(network.address_exclude(hole))  # type: ignore[arg-type]


def _is_table(word: str) -> bool:
    kind, colon, rest = word.partition(":")
    return bool(colon and kind.isalpha() and rest and not word.startswith("["))


def _inline(text: str) -> Iterator[tuple[str, str, str]]:
    text = text.strip().removeprefix("{").removesuffix("}")
    for pair in split_list(text):
        key, equals, value = pair.strip("{} ").partition("=")
        if equals:
            yield key.strip().lower(), value.strip(), "main.cf"
