"""The rules: what is a cause, what is not, and what is not known."""

from __future__ import annotations

from datetime import date
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.urls import resolve

from appliance.alerts.causes import CAUSES_MAX, Cause, Judgement, key_of
from appliance.alerts.facts import DiskSpace, Facts, KeyRecord, LastReport, Queued, Unknown, WebhookFailure
from appliance.alerts.rules import ABOUT, DATABASE, WATCH_AWAY, for_s, judge
from mailcore.bounds import bounds_by_name
from mailcore.config.alerts import RULES, Alerts
from mailcore.control.protocol.state import Certificate, Certificates
from mailcore.manager_answers import State
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.alerts.sample_facts import AWAY, NOW, ages, destinations, facts, outcomes, reply, state

DAY_S = 86_400.0
MX = "smtp:example.org"


def causes(given: Facts, **settings: Any) -> dict[str, Cause]:
    judgements = judge(given, Alerts(**settings))
    return {cause.key: cause for judgement in judgements for cause in judgement.causes}


def unknown(given: Facts, **settings: Any) -> dict[str, str]:
    return {each.rule: each.unknown for each in judge(given, Alerts(**settings)) if each.unknown}


def held(given: Facts, rule: str) -> frozenset[str]:
    return next(each.held for each in judge(given, Alerts()) if each.rule == rule)


def certificates(*given: tuple[str, float | None, str]) -> Certificates:
    rows = [Certificate(path=path, names=[], not_after=until, fault=fault) for path, until, fault in given]
    return Certificates(certificates=rows)


def test_nothing_is_wrong_on_a_host_on_which_all_is_well() -> None:
    assert causes(facts()) == {}
    assert unknown(facts()) == {}


def test_each_rule_is_judged_or_of_the_watch_and_says_what_it_is_about() -> None:
    judged = [each.rule for each in judge(facts(), Alerts())]
    assert sorted([*judged, WATCH_AWAY, DATABASE]) == sorted(RULES)
    assert ABOUT.keys() == set(RULES)
    assert [each.rule for each in judge(facts(), Alerts(off=RULES))] == []


def test_each_setting_of_a_rule_names_it() -> None:
    """The page of a rule shows them by that."""
    named = {bounds.doc.partition(": ")[0] for bounds in bounds_by_name(Alerts).values() if ": " in bounds.doc}
    assert set(RULES) - named == set()


FAILING = {
    "core_away": facts(
        core_away="no answer to state in time", state=AWAY, destinations=AWAY, queued=AWAY, ages=AWAY, disks=AWAY,
        certificates=AWAY, key_records=AWAY, outcomes=AWAY,
    ),
    "active_set_full": facts(state=state(active_full="20 000 messages, 19 000 of them for smtp:slow.example")),
    f"destination_dead:{MX}": facts(
        destinations=destinations(queued={MX: 3}, without_mail={MX: {"last_replies": [reply()]}})
    ),
    f"tls_failing:{MX}": facts(
        destinations=destinations(queued={MX: 3}, without_mail={MX: {"last_replies": [reply(dsn="4.7.5")]}})
    ),
    "queue_age": facts(
        ages=ages({"arrived_at": NOW - 2 * DAY_S, "state": "deferred", "queue_id": "1K0RDGV4BE900", "destination": MX})
    ),
    "queue_growth": facts(queued=Queued(15_000, 5_000, NOW - 3_600, 0, 0)),
    "bounces": facts(queued=Queued(0, 0, NOW - 3_600, 160, 40)),
    "sender_bounces:a.example": facts(
        outcomes=outcomes(
            senders=[
                {"domain": "a.example", "ended": 200, "bounced": 10}, {"domain": "b.example", "ended": 199, "bounced": 199},
                {"domain": "c.example", "ended": 10_000, "bounced": 499},
            ]
        )
    ),
    "tls_clear:mx.a.example[192.0.2.1]:25": facts(
        outcomes=outcomes(
            hosts=[
                {"host": "mx.a.example[192.0.2.1]:25", "over_tls": 3, "failed": 10, "not_offered": 0, "reason": "bad\r\nX"},
                {"host": "mx.b.example[192.0.2.2]:25", "over_tls": 3, "failed": 0, "not_offered": 9, "reason": ""},
            ]
        )
    ),
    "disk:space:queue": facts(
        disks=(DiskSpace(what="queue", path="/q", device=1, free_bytes=100, reserve_bytes=60),)
    ),
    "disk:inodes:queue": facts(
        disks=(DiskSpace(what="queue", path="/q", device=1, free_bytes=100, free_inodes=15, reserve_inodes=10),)
    ),
    "disk:stalled": facts(state=state(stalled="no space left on /queue")),
    "certificate:/cert.pem": facts(certificates=certificates(("/cert.pem", NOW + 13 * DAY_S, ""))),
    "dkim:2026a._domainkey.example.org": facts(
        key_records=(KeyRecord("2026a._domainkey.example.org", "is missing"), KeyRecord("other.example", ""))
    ),
    "balance:live": facts(
        state=state(balance={"recipients": {"difference": 2, "queued": 0}, "messages": {"difference": 0}})
    ),
    "balance:report:2026-11-20": facts(report=LastReport(day=date(2026, 11, 20), balances=False, words="2 missing")),
    "balance:report:2026-11-18": facts(
        report=LastReport(day=date(2026, 11, 20), balances=True, late=((date(2026, 11, 18), "2 missing"),))
    ),
    "report_missing:2026-11-20": facts(report=LastReport(missing=((date(2026, 11, 20), 13 * 3_600.0),))),
    "replication": facts(
        state=state(shard={"name": "north", "lease_s": 0.0, "commit_waits_s": 31.0, "trouble": "no route\r\nX: y"})
    ),
    "webhook:1": facts(webhooks=(WebhookFailure(number=1, name="crm", for_s=3_600.0, words="500 no\r\nX: y"),)),
    "webhook:2": facts(webhooks=(WebhookFailure(number=2, name="crm", for_s=1.0, words="", lost="they are gone"),)),
    "not_checked:certificate": facts(certificates=Unknown("no answer")),
}  # fmt: skip


@pytest.mark.parametrize("key", FAILING)
def test_a_cause_is_found_alone_and_its_rule_may_be_turned_off(key: str) -> None:
    """Also no other rule says something about it: one cause has one alert."""
    (found,) = causes(FAILING[key]).values()
    assert found.key == key
    assert found.rule == key.partition(":")[0]
    assert "\r" not in found.summary + found.detail, "a text of another server stays in its line"
    assert causes(FAILING[key], off=(found.rule,)) == {}


@pytest.mark.django_db
@pytest.mark.parametrize("key", FAILING)
def test_the_page_that_shows_why_is_there(key: str) -> None:
    (found,) = causes(FAILING[key]).values()
    match = resolve(found.link.partition("?")[0])
    assert match.func is not None
    client: Client = client_of("viewer")
    answer = client.get(found.link)
    # Without a core its pages say so; only what a test did not make may be missing: the report of a day, a webhook.
    assert answer.status_code in (200, 503) or (
        answer.status_code == 404 and key.startswith(("balance:report", "webhook:"))
    )


def test_what_is_unknown_is_said_and_is_never_good() -> None:
    """A rule that has no facts says so, each for itself, and the reason that another alert has does not count twice."""
    lost = {
        name: Unknown(f"no {name}")
        for name in (
            "destinations",
            "queued",
            "ages",
            "disks",
            "certificates",
            "key_records",
            "report",
            "outcomes",
            "webhooks",
        )
    }
    given = facts(core_away=Unknown("of two versions"), state=Unknown("of two versions"), **lost)
    rules = set(RULES) - {"not_checked", WATCH_AWAY, DATABASE}
    assert unknown(given).keys() == rules
    assert causes(given).keys() == {f"not_checked:{rule}" for rule in rules}
    away = FAILING["core_away"]
    assert unknown(away).keys() == rules - {"core_away", "report_missing", "webhook"}
    assert causes(away).keys() == {"core_away"}
    assert held(away, "not_checked") == {
        f"not_checked:{rule}" for rule in rules - {"core_away", "report_missing", "webhook"}
    }


def test_a_rule_that_fails_is_unknown_and_the_others_are_judged() -> None:
    broken = msgspec.structs.replace(state(), balance=None)
    assert isinstance(broken, State)
    given = facts(state=broken, queued=Queued(15_000, 5_000, NOW - 3_600, 0, 0))
    assert set(unknown(given)) == {"balance"}
    assert causes(given).keys() == {"queue_growth", "not_checked:balance"}


# -- destinations


def of(
    name: str = MX, *, queued: int = 3, states: tuple[str, ...] = (), cut_off: bool = False, **outcomes: Any
) -> Facts:
    answer = destinations(
        queued={name: queued},
        without_mail={name: outcomes} if outcomes else {},
        states={name: [[each, None] for each in states]},
    )
    return facts(destinations=answer, destinations_max=1 if cut_off else 1_000)


def test_a_destination_takes_no_mail_if_it_is_dead_or_was_not_delivered_to_since_the_last_deferral() -> None:
    key = f"destination_dead:{MX}"
    assert key in causes(of(states=("dead",)))
    assert key in causes(of(states=("transport dead",)))
    assert key in causes(of(last_replies=[reply(at=20.0)], last_delivered_at=10.0))
    assert causes(of(last_replies=[reply(at=10.0)], last_delivered_at=20.0)) == {}
    assert causes(of(last_replies=[reply(status="bounced")])) == {}
    assert causes(of(states=("dead", "suspended"))) == {}, "an operator knows of it"
    assert causes(of(queued=0, states=("dead",))) == {}, "no mail waits"


def test_what_was_not_tried_since_the_manager_started_is_not_known() -> None:
    given = of()
    assert causes(given) == {}
    assert held(given, "destination_dead") == {f"destination_dead:{MX}"}
    assert held(of(last_delivered_at=10.0), "destination_dead") == frozenset()


def test_an_answer_that_was_cut_off_says_nothing_about_those_it_does_not_name() -> None:
    by_rule = {each.rule: each for each in judge(of(cut_off=True), Alerts())}
    assert by_rule["destination_dead"].holds_others
    assert not {each.rule: each for each in judge(of(), Alerts())}["destination_dead"].holds_others


def test_an_answer_that_was_cut_off_is_completed_by_the_sizes() -> None:
    """A destination that has no mail is not among the sizes: its alert ends. One that was not tried is not known."""
    answer = destinations(queued={MX: 3}, states={MX: [["dead", None]]})

    def judged(sizes: dict[str, int]) -> Judgement:
        given = facts(destinations=answer, destinations_max=1, queued_by_destination=sizes)
        return {each.rule: each for each in judge(given, Alerts())}["destination_dead"]

    found = judged({MX: 3, "smtp:other.example": 1})
    assert [cause.key for cause in found.causes] == [f"destination_dead:{MX}"]
    assert not found.holds_others
    assert found.held == {"destination_dead:smtp:other.example"}
    assert judged({MX: 3, "": 7}).holds_others, "some have no size of their own"


def test_a_destination_that_was_delivered_to_is_not_held() -> None:
    answer = destinations(
        queued={"": 5, "smtp:a.example": 5},
        without_mail={
            "smtp:b.example": {"last_delivered_at": 20.0, "last_replies": [reply(at=10.0)]},
            "smtp:c.example": {"last_delivered_at": 5.0, "last_replies": [reply(at=10.0)]},
        },
    )
    found = {each.rule: each for each in judge(facts(destinations=answer), Alerts())}["destination_dead"]
    assert found.holds_others
    assert found.gone == {"destination_dead:smtp:b.example"}


def test_while_a_shard_is_silent_no_alert_about_a_destination_ends() -> None:
    """law: silent-is-unknown. It may be dead there, also if others deliver to it."""
    answer = destinations(
        queued={MX: 3, "smtp:dead.example": 1},
        without_mail={MX: {"last_delivered_at": 20.0, "last_replies": [reply(at=10.0)]}},
        states={"smtp:dead.example": [["dead", None]]},
        unanswered="shard 2 at b does not answer, and its mail is not counted: node b does not answer",
    )
    found = {each.rule: each for each in judge(facts(destinations=answer), Alerts())}["destination_dead"]
    assert found.holds_others
    assert not found.gone
    assert [cause.key for cause in found.causes] == ["destination_dead:smtp:dead.example"], "the known one stays open"


def test_many_dead_destinations_are_few_alerts() -> None:
    names = [f"smtp:d{number:03}.example" for number in range(CAUSES_MAX + 7)]
    answer = destinations(queued=dict.fromkeys(names, 1), states={name: [["dead", None]] for name in names})
    found = causes(facts(destinations=answer))
    assert len(found) == CAUSES_MAX + 1
    assert found["destination_dead:*"].summary.startswith("7 more destinations")
    assert len(held(facts(destinations=answer), "destination_dead")) == 7, "an alert about one of them stays as it is"


def test_long_names_have_keys_of_their_own() -> None:
    long = "x" * 300
    assert len(key_of("destination_dead", long)) <= 200
    assert key_of("destination_dead", long) != key_of("destination_dead", f"{long}y")


# -- limits


@pytest.mark.parametrize(("free", "severity"), [(120, None), (119, "warning"), (60, "critical")])
def test_a_disk_is_critical_when_new_mail_is_refused(free: int, severity: str | None) -> None:
    disk = DiskSpace(what="spool", path="/s", device=1, free_bytes=free, reserve_bytes=60)
    found = causes(facts(disks=(disk,)), disk_reserve_times=2)
    assert [str(each.severity) for each in found.values()] == ([severity] if severity else [])


def test_directories_on_one_disk_are_one_cause() -> None:
    disks = tuple(
        DiskSpace(what=what, path=f"/{what}", device=device, free_bytes=100, reserve_bytes=60)
        for what, device in (("queue", 1), ("spool", 1), ("other", 2))
    )
    found = causes(facts(disks=disks))
    assert found.keys() == {"disk:space:queue", "disk:space:other"}
    assert "queue, spool" in found["disk:space:queue"].summary


def test_the_disk_of_the_portal_has_a_limit_of_its_own() -> None:
    disk = DiskSpace(what="portal", path="/home/portal", device=3, free_bytes=99 << 20)
    assert causes(facts(disks=(disk,)), portal_disk_free_bytes=100 << 20).keys() == {"disk:space:portal"}
    assert causes(facts(disks=(disk,)), portal_disk_free_bytes=99 << 20) == {}


@pytest.mark.parametrize(
    ("days", "severity"), [(14.1, None), (13.9, "warning"), (3.1, "warning"), (2.9, "critical"), (-1, "critical")]
)
def test_a_certificate_that_expires(days: float, severity: str | None) -> None:
    found = causes(facts(certificates=certificates(("/c", NOW + days * DAY_S, ""))))
    assert [str(each.severity) for each in found.values()] == ([severity] if severity else [])
    assert ("expired" in found["certificate:/c"].summary) is (days < 0) if found else True


def test_a_certificate_that_cannot_be_read_is_not_good() -> None:
    given = facts(certificates=certificates(("/a", None, "cannot be read"), ("/b", NOW + DAY_S, "")))
    assert causes(given).keys() == {"certificate:/b", "not_checked:certificate"}
    assert held(given, "certificate") == {"certificate:/a"}


def test_a_key_whose_record_cannot_be_asked_for_is_not_good() -> None:
    given = facts(
        key_records=(KeyRecord("a.example", Unknown("a.example: no answer")), KeyRecord("b.example", "is revoked"))
    )
    assert causes(given).keys() == {"dkim:b.example", "not_checked:dkim"}
    assert held(given, "dkim") == {"dkim:a.example"}


@pytest.mark.parametrize(
    ("counts", "at_rest", "found"),
    [
        ([0, 0, 0, 1], 1, False),  # the only old message is held
        ([0, 0, 2, 1], 1, True),  # more are old than are held
        ([5, 5, 0, 1], 1, False),
    ],
)
def test_held_mail_may_be_old(counts: list[int], at_rest: int, found: bool) -> None:
    oldest = {"arrived_at": NOW - 9 * DAY_S, "state": "held", "queue_id": "1K0RDGV4BE900"}
    given = facts(ages=ages(oldest, counts=counts, by_state={"held": at_rest}))
    assert ("queue_age" in causes(given)) is found


def test_the_queue_may_shrink_and_grow_a_little() -> None:
    for now in (0, 5_000, 14_999):
        assert causes(facts(queued=Queued(now, 5_000, NOW - 3_600, 0, 0))) == {}


@pytest.mark.parametrize(
    ("delivered", "bounced", "found"),
    [(160, 39, False), (159, 40, False), (161, 40, False), (0, 200, True), (0, 0, False)],
)
def test_bounces_count_when_they_are_many_and_much_of_the_mail(delivered: int, bounced: int, found: bool) -> None:
    given = facts(queued=Queued(0, 0, NOW - 3_600, delivered, bounced))
    assert ("bounces" in causes(given)) is found


def test_bounces_are_unknown_while_mail_is_counted_from_the_beginning() -> None:
    assert unknown(facts(queued=Queued(0, 0, NOW - 3_600))).keys() == {"bounces"}
    assert causes(facts(queued=Queued(0, 0, NOW - 3_600))) == {}


def test_a_report_is_missing_when_it_is_late() -> None:
    early = facts(report=LastReport(missing=((date(2026, 11, 20), 11 * 3_600.0),)))
    assert causes(early) == {}
    assert causes(facts(report=LastReport(day=date(2026, 11, 20), balances=None))) == {}, "not known is not red"


def test_how_long_a_cause_must_last() -> None:
    settings = Alerts(core_away_s=5, destination_dead_s=6)
    assert [for_s(rule, settings) for rule in ("core_away", "destination_dead", "disk", "queue_age")] == [5, 6, 0, 0]


@pytest.mark.parametrize(
    ("lease_s", "waits_s", "trouble", "found"),
    [
        (4.2, 0.0, "", False),
        (4.2, 29.0, "", False),  # as of any commit while the disks of the database are busy
        (4.2, 30.0, "", True),
        (4.2, 0.0, "no standby", True),  # the lease still runs
        (0.0, 0.0, "", True),
    ],
)
def test_a_database_that_takes_nothing_is_told(lease_s: float, waits_s: float, trouble: str, found: bool) -> None:
    shard = {"name": "north", "lease_s": lease_s, "commit_waits_s": waits_s, "trouble": trouble}
    assert ("replication" in causes(facts(state=state(shard=shard)))) is found


def test_a_shard_without_a_share_of_limits_is_told() -> None:
    shard = {"name": "north", "lease_s": 4.2, "commit_waits_s": 0.0, "limits_trouble": "node north is not in"}
    cause = causes(facts(state=state(shard=shard)))["replication:limits"]
    assert "it delivers no mail" in cause.summary
    assert cause.detail == "node north is not in"


def test_a_sender_domain_is_linked_to_the_log_with_its_bounces() -> None:
    sender = {"domain": "a*b.example", "ended": 200, "bounced": 200}
    (found,) = causes(facts(outcomes=outcomes(senders=[sender]))).values()
    assert found.link == "/log/?sender=%2A%40a%5C%2Ab.example&status=bounced"
    assert found.detail.startswith("200 of 200 since ")


def test_many_sender_domains_are_bounded_and_each_is_held() -> None:
    senders = [{"domain": f"d{number}.example", "ended": 200, "bounced": 100} for number in range(CAUSES_MAX + 3)]
    found = causes(facts(outcomes=outcomes(senders=senders)))
    assert len(found) == CAUSES_MAX + 1
    assert found["sender_bounces:*"].summary.startswith("3 more sender domains")


def test_outcomes_that_could_not_be_read_whole_are_not_good() -> None:
    assert unknown(facts(outcomes=outcomes(note="a file is damaged"))).keys() == {"sender_bounces", "tls_clear"}
