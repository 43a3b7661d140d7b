"""The identifier at the beginning of Authentication-Results (RFC 8601 2.5): whose results a field claims to be. Pure.

Keeps law: forged-results-removed (docs/laws.md).
"""

from __future__ import annotations

from mailcore.routing.address import a_labels

__all__ = ["NAME", "claims"]

NAME = b"Authentication-Results"
_ENDS_IDENTIFIER = " \t\r\n/=@,:<>[]"  # the grammar has only the first four, but a careless reader may stop at any


def claims(field: bytes, authserv_id: str) -> bool:
    """Returns whether an Authentication-Results field is, or may be read as, one with our identifier.

    Comments, folding, quotes, a version, upper case, a final dot and U-labels hide nothing. A field whose identifier cannot
    be read is taken for ours: some reader might read it so.
    """
    value = field.partition(b":")[2].decode("utf-8", "replace").replace("\0", "")
    found = _first_word(value)
    return found is None or _comparable(found) == _comparable(authserv_id)


def _first_word(text: str) -> str | None:
    """Returns the identifier; None if the grammar is broken."""
    word = ""
    at, depth = 0, 0
    while at < len(text):
        character = text[at]
        if depth:
            depth += (character == "(") - (character == ")")
            at += 2 if character == "\\" else 1
        elif character == "(":
            depth = 1
            at += 1
        elif character in _ENDS_IDENTIFIER:
            if word:
                return word
            at += 1
        elif character == ";":
            break
        elif character == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 1 if text[end] == "\\" else 0
                word += text[end : end + 1]
                end += 1
            at = end + 1
            if end >= len(text):
                return None
        else:
            word += character
            at += 1
    return word if word and not depth else None


def _comparable(identifier: str) -> str:
    identifier = identifier.strip().removesuffix(".").lower()
    try:
        return a_labels(identifier) or identifier
    except UnicodeError:
        return identifier
