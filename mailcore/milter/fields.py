"""The header section of a message, as a filter sees and changes it (libmilter's smfi_addheader, smfi_chgheader ...).

Laws
- A field that no filter changes stays byte for byte as it is stored.
- What a filter writes cannot end the header section, begin another field or hold a bare CR or LF: its lines are folded.
- The first field is our own Received, unless a header check has dropped it or put another one before it (``own``). Filters do
  not see it; places at which they insert count it as one, as in Sendmail and Postfix.

Data is as on the wire: CRLF, dot-stuffed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

__all__ = ["BadChange", "Fields"]

_NAME = re.compile(rb"[!-9;-~]{1,200}")  # RFC 5322 3.6.8, and far longer than any in use
_STARTS_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")
_LINE_ENDS = re.compile(rb"\r?\n")
CRLF = b"\r\n"


class BadChange(Exception):
    """Raised for a change that cannot be made; the message says why."""


class Fields:
    """The fields of a message, each as stored with its CRLF, without the empty line at the end.

    ``own``: how many of them, at the top, are ours.
    """

    def __init__(self, fields: list[bytes], own: int = 1) -> None:
        self._fields = fields
        self._above = 0  # fields that were inserted above ours
        self._own = own
        self.changed = False

    def copy(self) -> Fields:
        """Returns a copy, to go back to."""
        fields = Fields(list(self._fields), self._own)
        fields._above, fields.changed = self._above, self.changed
        return fields

    @classmethod
    def parse(cls, data: bytes, own: int = 1) -> tuple[Fields, int]:
        """Reads the beginning of a message; returns the fields, and where the body begins.

        A line that is neither a field nor folded ends the header section; it belongs to the body.
        """
        fields: list[bytes] = []
        begins = at = 0
        while at < len(data):
            end = data.find(CRLF, at) + 2
            if end < 2:
                end = len(data)
            if data[at : at + 1] not in (b" ", b"\t") or not at:
                if at:
                    fields.append(data[begins:at])
                begins = at
                if not _STARTS_FIELD.match(data, at, end):
                    break
            at = end
        else:
            if begins < at:
                fields.append(data[begins:])
        return cls(fields, own), at

    @property
    def data(self) -> bytes:
        """Returns the fields as they are stored."""
        return b"".join(self._fields)

    @property
    def of_client(self) -> bytes:
        """Returns the fields that the client sent, as they are stored."""
        return b"".join([self._fields[at] for at in self._foreign()])

    def _foreign(self) -> Iterator[int]:
        """Yields the places of the fields that are not our own."""
        for at in range(len(self._fields)):
            if not self._above <= at < self._above + self._own:
                yield at

    def remove(self, name: bytes, is_unwanted: Callable[[bytes], bool]) -> int:
        """Removes fields of the client with this name that are not wanted; returns how many."""
        wanted = name.lower()
        removed = [
            at
            for at in self._foreign()
            if _name_of(self._fields[at]) == wanted and is_unwanted(_unstuffed(self._fields[at]))
        ]
        for at in reversed(removed):
            self._remove(at)
        return len(removed)

    def _remove(self, at: int) -> None:
        del self._fields[at]
        self._above -= at < self._above
        self.changed = True

    def shown(self, keep_space: bool) -> list[tuple[bytes, bytes]]:
        """Returns name and value of each field for a filter; folded lines are separated by LF."""
        pairs = []
        for at in self._foreign():
            name, _, value = _unstuffed(self._fields[at]).partition(b":")
            value = value.removesuffix(CRLF).replace(CRLF, b"\n")
            pairs.append((name.rstrip(b" \t"), value if keep_space else value.removeprefix(b" ")))
        return pairs

    def add(self, name: bytes, value: bytes, keep_space: bool) -> None:
        """Adds a field behind all others. Raises BadChange."""
        self._fields.append(_field(name, value, keep_space))
        self.changed = True

    def insert(self, place: int, name: bytes, value: bytes, keep_space: bool) -> None:
        """Inserts a field; place 0 is above our own Received, 1 above the first field of the client. Raises BadChange."""
        field = _field(name, value, keep_space)
        if place:
            self._fields.insert(self._above + self._own + place - 1, field)
        else:
            self._fields.insert(0, field)
            self._above += 1
        self.changed = True

    def change(self, number: int, name: bytes, value: bytes, keep_space: bool) -> None:
        """Changes the field with this name that has this number, from 1 on; an empty value removes it. Raises BadChange.

        If there are not as many, a field is added, as in Postfix.
        """
        wanted = name.lower()
        number = max(1, number)
        for at in self._foreign():
            if _name_of(self._fields[at]) == wanted:
                number -= 1
                if not number:
                    if value:
                        self._fields[at] = _field(name, value, keep_space)
                        self.changed = True
                    else:
                        self._remove(at)
                    return
        if value:
            self.add(name, value, keep_space)


def _field(name: bytes, value: bytes, keep_space: bool) -> bytes:
    if not _NAME.fullmatch(name):
        raise BadChange(f"wants a header field with the name {name[:40]!r}, which no field can have")
    if b"\r" in value.replace(CRLF, b"") or b"\0" in value:
        raise BadChange("wants a header field with a bare CR or a NUL in it")
    first, *more = _LINE_ENDS.split(value)
    lines = [name + (b":" if keep_space else b": ") + first]
    lines += [line if line[0] in b" \t" else b"\t" + line for line in more if line.strip(b" \t")]
    return b"".join((b"." if line.startswith(b".") else b"") + line + CRLF for line in lines)


def _name_of(field: bytes) -> bytes:
    return _unstuffed(field).partition(b":")[0].rstrip(b" \t").lower()


def _unstuffed(field: bytes) -> bytes:
    return field[1:] if field.startswith(b".") else field
