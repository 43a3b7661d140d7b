"""The behaviour of a next hop: what it does at each stage of a session, parsed from a short text.

    accept                      takes everything
    slow(S)                     the reply to the final dot takes S seconds; slow(S, rcpt) the reply to each RCPT;
                                slow(S, rcpt, 0.2) each a time of its own, up to a fifth shorter or longer
    limit(K)                    421 in place of the greeting while K connections are open
    greylist(S)                 450 for each new client, sender and recipient, until S seconds after the first try
    reject(WHAT, CODE, STAGE)   WHAT is a share (0.1) or an address pattern (*@example.org); CODE (550), STAGE (rcpt)
    silent(STAGE, SHARE)        answers no more from this stage on (connect: never greets)
    dead_for(S)                 refuses connections for S seconds, then lives
    rst(STAGE, SHARE)           resets the connection in place of the reply
    close(STAGE, SHARE)         closes it in order, in place of the reply
    without(KEYWORD)            does not offer this EHLO keyword; without(ehlo) knows only HELO

Several are joined with ``+`` and asked in that order: delays add up, the first that decides wins.

Values only: no sockets, no clock, no randomness of its own (an argument), so that a seed gives the same run again.
"""

from __future__ import annotations

import enum
import fnmatch
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from mailcore.counted import counted

__all__ = ["Behaviour", "BehaviourError", "Deed", "Delay", "Occasion", "Outcome", "Reply", "Stage", "parse"]

SECONDS_MAX = 86_400.0  # a hop slower than a day is a typing error
GREYLIST_MAX = 1_000_000  # triples remembered by one hop; beyond, the oldest are forgotten


class BehaviourError(ValueError):
    """The text is not a behaviour; the message says what is wrong and what is allowed."""


class Stage(enum.StrEnum):
    """Where in a session; the behaviour speaks in place of the reply that is due there."""

    CONNECT = "connect"  # before the greeting
    EHLO = "ehlo"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"  # the DATA command
    BODY = "body"  # the first bytes of the message came; there is no reply here, so only silent, rst and close
    FINAL = "final"  # the final dot came
    QUIT = "quit"


@dataclass(frozen=True, slots=True)
class Occasion:
    """The facts that a trait may use."""

    now: float  # monotonic
    connections: int  # open on this hop, this one included
    client: str = ""
    sender: str = ""
    recipients: tuple[str, ...] = ()  # the one in question at RCPT, all accepted ones from DATA on


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply in place of the good one."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class Delay:
    """A delay before the reply, in seconds."""

    seconds: float


class Deed(enum.Enum):
    """An action in place of a reply."""

    SILENCE = enum.auto()
    RESET = enum.auto()
    CLOSE = enum.auto()


Outcome = Reply | Delay | Deed
Trait = Callable[[Occasion], Outcome | None]


@dataclass(slots=True)
class Behaviour:
    """Traits by stage; a stage without any is not in ``traits``, which is what makes an accepting hop fast."""

    text: str
    traits: dict[Stage, list[Trait]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)  # EHLO keywords not offered, in capitals
    dead_s: float = 0.0  # seconds for which it refuses connections at first

    def add(self, stage: Stage, trait: Trait) -> None:
        """Adds a trait to a stage, behind those that are there."""
        self.traits.setdefault(stage, []).append(trait)


def parse(text: str, chance: random.Random) -> Behaviour:
    """Parses a behaviour such as ``slow(0.2, rcpt)+reject(0.1, 450)``. Raises BehaviourError."""
    behaviour = Behaviour(text=text)
    for part in _split(text):
        match = _TRAIT.fullmatch(part)
        if match is None:
            raise BehaviourError(f"{part!r} is not a behaviour: write name or name(argument, ...)")
        name = match["name"].lower()
        words = [word.strip() for word in match["arguments"].split(",")] if match["arguments"] else []
        maker = _MAKERS.get(name)
        if maker is None:
            raise BehaviourError(f"{name!r} is not a behaviour; there are: {', '.join(sorted(_MAKERS))}")
        maker(behaviour, words, chance)
    return behaviour


_TRAIT = re.compile(r"(?P<name>[a-zA-Z_]+)(?:\((?P<arguments>[^()]*)\))?")


def _split(text: str) -> list[str]:
    """Splits at each ``+`` outside of parentheses: an address pattern may contain one."""
    parts = [""]
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _count(words: list[str], name: str, least: int, most: int) -> None:
    if not least <= len(words) <= most:
        wanted = counted(least, "argument") if least == most else f"{least} to {most} arguments"
        raise BehaviourError(f"{name} takes {wanted}, not {len(words)}")


def _number(word: str, name: str, low: float, high: float) -> float:
    try:
        value = float(word)
    except ValueError:
        raise BehaviourError(f"{name}: {word!r} is not a number") from None
    if not low <= value <= high:
        raise BehaviourError(f"{name}: {word} is not between {low:g} and {high:g}")
    return value


def _stage(word: str, name: str, allowed: tuple[Stage, ...]) -> Stage:
    if word not in allowed:
        raise BehaviourError(f"{name}: {word!r} is not one of its stages; allowed: {', '.join(allowed)}")
    return Stage(word)


def _accept(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    del behaviour, chance
    _count(words, "accept", 0, 0)


def _slow(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    _count(words, "slow", 1, 3)
    seconds = _number(words[0], "slow", 0, SECONDS_MAX)
    allowed = tuple(stage for stage in Stage if stage is not Stage.BODY)
    stage = _stage(words[1] if len(words) > 1 else Stage.FINAL, "slow", allowed)
    spread = _number(words[2], "slow", 0, 1) if len(words) > 2 else 0.0
    delay = Delay(seconds)
    if spread:
        behaviour.add(stage, lambda _: Delay(seconds * chance.uniform(1 - spread, 1 + spread)))
    else:
        behaviour.add(stage, lambda _: delay)


def _limit(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    del chance
    _count(words, "limit", 1, 1)
    most = int(_number(words[0], "limit", 0, 1_000_000))
    full = Reply(421, "4.7.0 Too many connections")
    behaviour.add(Stage.CONNECT, lambda occasion: full if occasion.connections > most else None)


def _greylist(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    del chance
    _count(words, "greylist", 1, 1)
    wait_s = _number(words[0], "greylist", 0, SECONDS_MAX)
    first_seen: dict[tuple[str, str, str], float] = {}
    later = Reply(450, "4.2.0 Greylisted, try again later")

    def greylist(occasion: Occasion) -> Outcome | None:
        key = (occasion.client, occasion.sender, occasion.recipients[0])
        seen = first_seen.setdefault(key, occasion.now)
        if len(first_seen) > GREYLIST_MAX:
            del first_seen[next(iter(first_seen))]
        return later if seen == occasion.now or occasion.now - seen < wait_s else None

    behaviour.add(Stage.RCPT, greylist)


def _reject(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    _count(words, "reject", 1, 3)
    code = int(_number(words[1], "reject", 400, 599)) if len(words) > 1 else 550
    allowed = (Stage.CONNECT, Stage.EHLO, Stage.MAIL, Stage.RCPT, Stage.DATA, Stage.FINAL)
    stage = _stage(words[2] if len(words) > 2 else Stage.RCPT, "reject", allowed)
    refusal = Reply(code, f"{code // 100}.{'1.1' if stage is Stage.RCPT else '7.1'} Refused by the lab")
    try:
        share = float(words[0])
    except ValueError:
        pattern = words[0].lower()
        if "@" not in pattern and "*" not in pattern:
            raise BehaviourError(
                f"reject: {words[0]!r} is neither a share from 0 to 1 nor an address pattern"
            ) from None
        if stage in (Stage.CONNECT, Stage.EHLO):
            raise BehaviourError(f"reject: no address is known at {stage}, only a share can be refused there") from None

        def reject_pattern(occasion: Occasion) -> Outcome | None:
            addresses = (occasion.sender,) if stage is Stage.MAIL else occasion.recipients
            return refusal if any(fnmatch.fnmatchcase(each.lower(), pattern) for each in addresses) else None

        behaviour.add(stage, reject_pattern)
        return
    _number(words[0], "reject", 0, 1)
    behaviour.add(stage, lambda _: refusal if chance.random() < share else None)


def _deed(name: str, deed: Deed) -> Callable[[Behaviour, list[str], random.Random], None]:
    def make(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
        _count(words, name, 0, 2)
        stage = _stage(words[0] if words else Stage.CONNECT, name, tuple(Stage))
        share = _number(words[1], name, 0, 1) if len(words) > 1 else 1.0
        behaviour.add(stage, lambda _: deed if share >= 1.0 or chance.random() < share else None)

    return make


def _dead_for(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    del chance
    _count(words, "dead_for", 1, 1)
    behaviour.dead_s = _number(words[0], "dead_for", 0, SECONDS_MAX)


def _without(behaviour: Behaviour, words: list[str], chance: random.Random) -> None:
    del chance
    _count(words, "without", 1, 10)
    behaviour.without.update(word.upper() for word in words)


_MAKERS: dict[str, Callable[[Behaviour, list[str], random.Random], None]] = {
    "accept": _accept,
    "slow": _slow,
    "limit": _limit,
    "greylist": _greylist,
    "reject": _reject,
    "silent": _deed("silent", Deed.SILENCE),
    "rst": _deed("rst", Deed.RESET),
    "close": _deed("close", Deed.CLOSE),
    "dead_for": _dead_for,
    "without": _without,
}
