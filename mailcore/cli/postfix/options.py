"""The command line of sendmail: every option that Postfix's sendmail(1) takes, and what Waypost does with it.

An option that Postfix ignores is ignored. One that Waypost cannot do is refused with a sentence: silently doing something else
would look like success.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mailcore.cli.postfix.exits import USAGE, Ended

__all__ = ["Given", "read_options"]

WITH_VALUE = frozenset("ABCFLNORVXbefhopr")
REPORTS = "SUCCESS,FAILURE,DELAY"  # of -v
IGNORED = frozenset("AGLOUXcehmnop")  # as Postfix does, or nothing that Waypost could change; -o is looked at below
REFUSED_MODES = {
    "d": "-bd: this program is not a daemon; start Waypost with: waypost mailcore, or systemctl start waypost-core",
    "l": "-bl: this program is not a daemon; start Waypost with: waypost mailcore, or systemctl start waypost-core",
    "h": "-bh: there is no host status; use: waypost destination list",
    "H": "-bH: there is no host status; use: waypost destination list",
    "D": "-bD: this program is not a daemon; start Waypost with: waypost mailcore",
}
NOTIFY = frozenset({"NEVER", "SUCCESS", "FAILURE", "DELAY"})  # RFC 3461 4.1


@dataclass(slots=True)
class Given:
    """The command line, read."""

    mode: str = "m"  # m: submit, v: verify, s: SMTP on stdin, p: list the queue, i: aliases, q: retry
    recipients: list[str] = field(default_factory=list)
    from_header: bool = False  # -t
    ignore_dots: bool = False  # -i
    sender: str | None = None
    full_name: str = ""
    eight_bit: bool = False
    reports: bool = False  # -v
    notify: str = ""
    ret: str = ""
    envelope_id: str = ""
    config: str = ""
    queue_id: str = ""  # -qI
    site: str = ""  # -qR


def read_options(argv: Sequence[str]) -> Given:
    """Reads the command line. Raises Ended for what is wrong or refused."""
    given = Given()
    arguments = list(argv)
    while arguments:
        argument = arguments.pop(0)
        if argument == "--":
            given.recipients += arguments
            break
        if not argument.startswith("-") or argument == "-":
            given.recipients.append(argument)
            continue
        if argument in ("--config", "--help", "--version"):
            raise Ended(USAGE, f"{argument}: not an option of sendmail; -C FILE names the configuration file")
        _letters(given, argument[1:], arguments)
    if given.reports and not given.notify:
        given.notify = REPORTS
    return given


def _letters(given: Given, letters: str, arguments: list[str]) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter == "q":
            _queue(given, letters)
            return
        if letter in WITH_VALUE:
            if not letters and not arguments:
                raise Ended(USAGE, f"-{letter} needs a value")
            _value(given, letter, letters or arguments.pop(0))
            return
        if letter == "c" and not letters and arguments and _is_configuration(arguments[0]):
            given.config = arguments.pop(0)
            return
        if letter == "t":
            given.from_header = True
        elif letter == "i":
            given.ignore_dots = True
        elif letter == "v":
            given.reports = True
        elif letter == "I":
            given.mode = "i"
        elif letter not in IGNORED:
            raise Ended(USAGE, f"unknown option -{letter}")


def _is_configuration(text: str) -> bool:
    """Tells whether what follows -c is a file, as with Postfix's other commands; sendmail's own -c has no value."""
    return "@" not in text and ("/" in text or text.endswith(".toml"))


def _queue(given: Given, text: str) -> None:
    """Reads what follows -q: nothing, -qIid, -qRsite. An interval is for a daemon."""
    given.mode = "q"
    if text.startswith("I"):
        given.queue_id = text[1:]
    elif text.startswith("R"):
        given.site = text[1:]
    elif text.startswith("S"):
        raise Ended(USAGE, "-qS: not by sender; use: waypost queue retry --all-matching --sender PATTERN")
    elif text:  # Postfix: "-q interval" is for the daemon, and ignored without -bd
        raise Ended(
            USAGE, f"-q{text}: Waypost retries automatically ([queue] retry_ladder_s); -q alone retries all mail now"
        )
    if text[:1] in ("I", "R") and len(text) == 1:
        raise Ended(USAGE, f"-q{text} needs a value")


def _value(given: Given, letter: str, value: str) -> None:
    if letter == "b":
        _mode(given, value)
    elif letter in "fr":
        given.sender = value
    elif letter == "F":
        given.full_name = value
    elif letter == "B":
        if value.upper() not in ("7BIT", "8BITMIME"):
            raise Ended(USAGE, "-B is 7BIT or 8BITMIME")
        given.eight_bit = value.upper() == "8BITMIME"
    elif letter == "N":
        wanted = value.upper().split(",")
        if not NOTIFY.issuperset(wanted) or ("NEVER" in wanted and len(wanted) > 1):
            raise Ended(USAGE, "-N is never, or a list of success, failure, delay")
        given.notify = ",".join(wanted)
    elif letter == "R":
        if value.upper() not in ("FULL", "HDRS"):
            raise Ended(USAGE, "-R is full or hdrs")
        given.ret = value.upper()
    elif letter == "V":
        if not value.isascii() or not value.isprintable() or " " in value or len(value) > 100:
            raise Ended(USAGE, "-V is at most 100 printable characters without a blank")
        given.envelope_id = value
    elif letter == "C":
        given.config = value
    elif letter == "o" and value in ("i", "itrue", "i=true"):
        given.ignore_dots = True


def _mode(given: Given, value: str) -> None:
    if value in REFUSED_MODES:
        raise Ended(USAGE, REFUSED_MODES[value])
    if value not in ("m", "v", "s", "p", "i", "a", "t"):
        raise Ended(USAGE, f"-b{value}: unknown mode")
    if value in ("a", "t"):
        raise Ended(USAGE, f"-b{value}: Postfix does not have this mode either")
    given.mode = value
