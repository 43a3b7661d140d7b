"""Each enhanced status code that we write is in IANA's registry, and has the class of the reply before it.

The golden file says what each code means and which modules write it, so that a new use is compared with the meaning.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.golden_files import Golden

ROOT = Path(__file__).parent.parent
LAB = "mailcore/lab"  # its servers answer as badly as their scripts want
# IANA, "SMTP Enhanced Status Codes": RFC 3463, 3886, 4468, 4865, 4954, 5248, 6531, 6710, 7293, 7372, 7505, 8616, 8689.
SUBJECTS = {
    0: ("other undefined status",),
    1: (
        "other address status", "bad destination mailbox address", "bad destination system address",
        "bad destination mailbox address syntax", "destination mailbox address ambiguous", "destination address valid",
        "destination mailbox has moved, no forwarding address", "bad sender's mailbox address syntax",
        "bad sender's system address", "message relayed to non-compliant mailer", "recipient address has null MX",
    ),
    2: (
        "other or undefined mailbox status", "mailbox disabled, not accepting messages", "mailbox full",
        "message length exceeds administrative limit", "mailing list expansion problem",
    ),
    3: (
        "other or undefined mail system status", "mail system full", "system not accepting network messages",
        "system not capable of selected features", "message too big for system", "system incorrectly configured",
        "requested priority was changed",
    ),
    4: (
        "other or undefined network or routing status", "no answer from host", "bad connection", "directory server failure",
        "unable to route", "mail system congestion", "routing loop detected", "delivery time expired",
    ),
    5: (
        "other or undefined protocol status", "invalid command", "syntax error", "too many recipients",
        "invalid command arguments", "wrong protocol version", "authentication exchange line is too long",
    ),
    6: (
        "other or undefined media error", "media not supported", "conversion required and prohibited",
        "conversion required but not supported", "conversion with loss performed", "conversion failed",
        "message content not available", "non-ASCII addresses not permitted for that sender or recipient",
        "UTF-8 string reply is required, but not permitted by the client",
        "UTF-8 header message cannot be transferred to one or more recipients",
    ),
    7: (
        "other or undefined security status", "delivery not authorized, message refused", "mailing list expansion prohibited",
        "security conversion required but not possible", "security features not supported", "cryptographic failure",
        "cryptographic algorithm not supported", "message integrity failure", "authentication credentials invalid",
        "authentication mechanism is too weak", "encryption needed",
        "encryption required for requested authentication mechanism", "a password transition is needed",
        "user account disabled", "trust relationship required", "priority level is too low",
        "message is too big for the specified priority", "mailbox owner has changed", "domain owner has changed",
        "RRVS test cannot be completed", "no passing DKIM signature found", "no acceptable DKIM signature found",
        "no valid author-matched DKIM signature found", "SPF validation failed", "SPF validation error",
        "reverse DNS validation failed", "multiple authentication checks failed", "sender address has null MX",
        "mail flood detected", "ARC validation failure", "REQUIRETLS support required",
    ),
}  # fmt: skip
REGISTRY = {
    (subject, detail): words for subject, all_words in SUBJECTS.items() for detail, words in enumerate(all_words)
}
_REPLY = re.compile(r"(?<!\d)(?<!RFC )([2-5])\d\d[ -]([245])\.(\d{1,3})\.(\d{1,3})(?![\d.])")
_CODE = re.compile(r"([245])\.(\d{1,3})\.(\d{1,3})")


class Use(NamedTuple):
    """``reply_class``: the first digit of the reply with the code; "" for a code alone."""

    module: str
    line: int
    reply_class: str
    code: str


def uses() -> Iterator[Use]:
    """Returns the codes in all texts of the mail side: those that are a text of their own, and those of replies."""
    for path in sorted((ROOT / "mailcore").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if module.startswith(LAB):
            continue
        yield from (Use(module, *rest) for rest in in_source(path.read_text()))


def in_source(source: str) -> Iterator[tuple[int, str, str]]:
    """Returns line, class of the reply and code."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
            continue
        text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        if match := _CODE.fullmatch(text):
            yield node.lineno, "", match[0]
        for match in _REPLY.finditer(text):
            yield node.lineno, match[1], f"{match[2]}.{match[3]}.{match[4]}"


def fault_of(reply_class: str, code: str) -> str:
    """Returns what is wrong with a code; "" if nothing is."""
    _, subject, detail = map(int, code.split("."))
    if (subject, detail) not in REGISTRY:
        return f"{code} is not in the registry"
    return f"{code} in a reply {reply_class}xx" if reply_class and reply_class != code[0] else ""


def test_each_code_is_in_the_registry_and_has_the_class_of_its_reply() -> None:
    found = list(uses())
    assert len(found) > 100, "the codes were not found"
    faults = [f"{use.module}:{use.line}: {fault}" for use in found if (fault := fault_of(use.reply_class, use.code))]
    assert faults == []


def test_a_wrong_code_is_seen() -> None:
    source = 'A = b"550 4.7.1 no"\nB = f"451 4.7.99 {A}"\nC = "5.8.0"\nD = "10.5.1.1"\nE = b"250 2.1.5 Ok"\n'
    faults = [fault_of(reply_class, code) for _, reply_class, code in in_source(source)]
    assert faults == ["4.7.1 in a reply 5xx", "5.8.0 is not in the registry", "", "4.7.99 is not in the registry"]


def test_the_table_of_codes(golden: Golden) -> None:
    modules: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    for use in uses():
        first, subject, detail = map(int, use.code.split("."))
        modules[subject, detail, first].add(use.module.removeprefix("mailcore/"))
    lines = []
    for (subject, detail, first), names in sorted(modules.items()):
        lines.append(f"{first}.{subject}.{detail}  {REGISTRY.get((subject, detail), '?')}")
        lines += [f"    {name}" for name in sorted(names)]
    golden("status-codes.txt", "\n".join(lines))
