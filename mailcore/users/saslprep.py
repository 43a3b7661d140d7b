"""SASLprep (RFC 4013): one spelling of a password, so that two keyboards that write the same letters log in alike. Pure."""

from __future__ import annotations

import stringprep
import unicodedata

__all__ = ["saslprep"]

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """Returns the prepared text. Raises ValueError for a character that is not allowed.

    Characters that Unicode 3.2 does not have are kept as they are: RFC 4013 2.5 allows them in what a client sends.
    """
    if not text.isascii():
        mapped = (" " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each))
        text = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if any(table(each) for each in text for table in _PROHIBITED):
        raise ValueError("has a control character or another one that SASLprep (RFC 4013) prohibits")
    if any(
        map(stringprep.in_table_d1, text)
    ):  # RFC 3454 6: right to left from the first character to the last, or not at all
        ends = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
        if not ends or any(map(stringprep.in_table_d2, text)):
            raise ValueError("mixes letters written from right to left with others")
    return text
