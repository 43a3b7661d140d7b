"""What one shard has found dead, all hear of, and so when it is alive again."""

from __future__ import annotations

from mailcore.shares.giver import Giver
from mailcore.shares.holder import Holder
from mailcore.shares.messages import Answer, Dead, Welcome

NEXT_HOP = "smtp:[192.0.2.1]:25"


class Shard:
    """Asks one giver, and hears its answers at once."""

    def __init__(self, name: str, giver: Giver) -> None:
        self.giver = giver
        self.holder = Holder(name)
        self.holder.welcomed(Welcome(giver.epoch))

    def hears(self, now: float, dead: dict[str, Dead] | None = None, alive: tuple[str, ...] = ()) -> dict[str, Dead]:
        answer = self.giver.answer(self.holder.ask(now, {NEXT_HOP: 3}, {}, dead, alive), now)
        assert isinstance(answer, Answer)
        assert self.holder.answered(answer)
        return dict(answer.dead)


def two() -> tuple[Shard, Shard]:
    giver = Giver(1, -100.0, lambda _: 5)
    return Shard("A", giver), Shard("B", giver)


def test_a_death_is_heard_of_until_its_end() -> None:
    one, other = two()
    assert one.hears(0.0, {NEXT_HOP: Dead(300.0, "refused")}) == {NEXT_HOP: Dead(300.0, "refused")}
    assert other.hears(0.5) == {NEXT_HOP: Dead(299.5, "refused")}
    assert other.hears(300.0) == {}


def test_one_who_has_no_mail_for_it_hears_nothing() -> None:
    one, other = two()
    one.hears(0.0, {"smtp:[192.0.2.9]:25": Dead(300.0, "refused")})
    assert other.hears(0.5) == {}


def test_who_found_it_says_no_more_that_it_is_dead() -> None:
    one, other = two()
    one.hears(0.0, {NEXT_HOP: Dead(300.0, "refused")})
    other.hears(0.5)
    one.hears(1.0)
    assert other.hears(1.5) == {}


def test_another_knows_better_and_who_found_it_is_not_believed_any_more() -> None:
    one, other = two()
    found = {NEXT_HOP: Dead(300.0, "refused")}
    one.hears(0.0, found)
    assert other.hears(0.5, alive=(NEXT_HOP,)) == {}
    assert one.hears(1.0, found) == {}, "it was found before"
    assert other.hears(1.5) == {}
    assert one.hears(5.0, found) == found, "it is dead again"


def test_a_giver_that_was_elected_hears_of_it_with_the_next_question() -> None:
    one, other = two()
    found = {NEXT_HOP: Dead(300.0, "refused")}
    one.hears(0.0, found)
    one.giver = other.giver = Giver(2, 1.0, lambda _: 5)
    for each in (one, other):
        each.holder.welcomed(Welcome(2))
    one.hears(1.0, found)
    assert other.hears(1.5) == {NEXT_HOP: Dead(299.5, "refused")}


def test_what_is_over_is_forgotten() -> None:
    one, _ = two()
    for number in range(1000):
        one.hears(number / 10, {f"d{number}": Dead(1.0, "refused")}, alive=(f"e{number}",))
    deaths = one.giver._deaths
    assert len(deaths._found) + len(deaths._refuted) < 50
