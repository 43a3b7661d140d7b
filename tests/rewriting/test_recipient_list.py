"""The list of valid recipients: what is in it, and which files are refused as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.rewriting.map_text import MapFault
from mailcore.rewriting.recipient_list import read_recipients

FILE = """# made by a script
Kim@Example.Org OK
  a line that continues the one before
robin+news@example.org\tOK
@all.example x
straße@xn--bcher-kva.example
"""


@pytest.mark.parametrize(
    ("address", "delimiter", "valid"),
    [
        ("kim@example.org", "", True),
        ("KIM@EXAMPLE.ORG", "", True),
        ('"kim"@example.org', "", True),
        (r'"k\im"@example.org', "", True),
        ("kim+x@example.org", "", False),
        ("kim+x@example.org", "+", True),
        ("kim-x@example.org", "+-", True),
        ("+kim@example.org", "+", False),
        ("robin@example.org", "+", False),
        ("robin+news@example.org", "+", True),
        ("robin+news+x@example.org", "+", False),
        ("any@all.example", "", True),
        ("any@sub.all.example", "", False),
        ("straße@bücher.example", "", True),
        ("strasse@bücher.example", "", False),
        ("\u212aim@example.org", "", False),  # the Kelvin sign, whose lower case is k
        ("line@example.org", "", False),
        ("kim@example.com", "", False),
    ],
)
def test_an_address_is_found_as_mail_compares_it(tmp_path: Path, address: str, delimiter: str, valid: bool) -> None:
    (tmp_path / "list").write_text(FILE)
    assert read_recipients([str(tmp_path / "list")], delimiter).has(address) is valid


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"kim@example.org\nkim\n", ":2: 'kim' is neither an address nor @domain"),
        (b"@-.example\n", ":1: '@-.example' is neither"),
        (b"kim@example.org\n\xff@example.org\n", ":2: the line is not UTF-8"),
        (b"kim@example.org\n*@example.org\n", ":2: '*@example.org' must be '@example.org'"),
        (b"", ": no address is in it"),
        (b"# nothing yet\n\n", ": no address is in it"),
        (b"x\n" * 30, ": and 10 more lines"),
    ],
)
def test_a_file_with_a_fault_is_not_used(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(MapFault) as raised:
        read_recipients([str(tmp_path / "list")])
    assert f"{tmp_path}/list{fault}" in str(raised.value)


def test_one_of_several_files_may_be_empty_and_none_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "list").write_text("kim@example.org\n")
    assert len(read_recipients([f"{tmp_path}/empty", f"{tmp_path}/list"])) == 1
    with pytest.raises(MapFault, match="cannot be read: No such file"):
        read_recipients([f"{tmp_path}/gone", f"{tmp_path}/list"])


def test_a_byte_order_mark_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfkim@example.org\n")
    assert read_recipients([str(tmp_path / "list")]).has("kim@example.org")
