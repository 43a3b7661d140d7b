"""The whole appliance: each refusal that a client got and each delivery is in the scrape, exactly, also after kills."""

from __future__ import annotations

import asyncio
import smtplib
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mailcore.lab.lab import Lab
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S
from tests.running.running_core import DATA, SENDER, RunningCore, Sections, route_to, running

FRIEND, UNKNOWN, FLOOD = (
    "127.0.0.1",
    "127.0.0.2",
    "127.0.0.3",
)  # addresses of clients; only the first is in [relay] networks
SIZE_MAX = 20_000
Refusals = Mapping[tuple[str, str], float]


class Scraped:
    """The text of one scrape, read as Prometheus does."""

    def __init__(self, text: str) -> None:
        families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = [sample for family in families.values() for sample in family.samples]
        self.counters = {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in families.values()
            for sample in family.samples
            if family.type in ("counter", "histogram")
        }
        self._samples = samples

    def of(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(each.labels[label] for label in labels): each.value for each in self._samples if each.name == name
        }

    @property
    def refusals(self) -> dict[tuple[str, ...], float]:
        return self.of("waypost_refusals_total", "class", "reason")


class Client:
    """Counts the refusals that it gets, by class and reason, as RFC 5321 and RFC 3463 have them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.refused: Counter[tuple[str, str]] = Counter()

    def session(self, source: str, sender: str, recipients: list[str], data: bytes = DATA, size: int = 0) -> None:
        try:
            client = smtplib.SMTP("127.0.0.1", self.port, timeout=PATIENCE_S, source_address=(source, 0))
        except smtplib.SMTPConnectError as error:
            return self._count(error.smtp_code, error.smtp_error)
        try:
            client.ehlo("client.example")
            taken = self._takes(*client.mail(sender, [f"size={size}"] if size else []))
            if taken and sum(self._takes(*client.rcpt(recipient)) for recipient in recipients):
                self._count(*client.data(data))
        except smtplib.SMTPDataError as error:
            self._count(error.smtp_code, error.smtp_error)
        finally:
            client.close()
        return None

    def _takes(self, code: int, reply: bytes) -> bool:
        self._count(code, reply)
        return code < 400

    def _count(self, code: int, reply: bytes | str) -> None:
        if code >= 400:
            words = (reply if isinstance(reply, str) else reply.decode()).split()
            self.refused[f"{code // 100}xx", words[0]] += 1


@asynccontextmanager
async def measured(path: Path, **more: object) -> AsyncIterator[tuple[RunningCore, Client, int]]:
    page = free_port()
    (path / "known").write_text("known@ours.example\ngrey@ours.example\n")
    sections: Sections = {
        "receiver": {"message_size_limit": SIZE_MAX, **more},
        "relay": {"networks": [f"{FRIEND}/32"], "domains": ["ours.example"]},
        "recipients": {"known_by": "file", "relay_recipient_maps": [str(path / "known")]},
        "clients": {"message_rate_limit": 12, "rate_time_s": 3600},
        "metrics": {"listen": f"127.0.0.1:{page}"},
    }
    async with Lab(["accept:127.0.0.1:0", "greylist(1):127.0.0.1:0"]) as lab:
        routes = {"grey@ours.example": route_to(lab, 1), "grey.example": route_to(lab, 1)}
        async with running(path, lab, sections, routes=routes) as core:
            yield core, Client(core.port), page


async def scrape(core: RunningCore, page: int) -> Scraped:
    def text() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{page}/metrics", timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())

    found: Scraped = await core.insist(lambda: asyncio.to_thread(lambda: Scraped(text())))
    return found


async def until_scraped(core: RunningCore, page: int, refusals: Refusals) -> Scraped:
    last: list[Scraped] = []

    async def all_there() -> Scraped | None:
        last[:] = [await scrape(core, page)]
        return last[0] if sum(last[0].refusals.values()) >= sum(refusals.values()) else None

    found: Scraped = await core.eventually(all_there, f"{refusals}, not only {last and last[0].refusals}")
    return found


def misbehave(client: Client) -> None:
    """Is refused in each way that a client without malice is refused, too."""
    client.session(UNKNOWN, SENDER, ["known@ours.example", "bad@ours.example", "worse@ours.example"])  # one is taken
    client.session(UNKNOWN, SENDER, ["someone@elsewhere.example"])
    client.session(FRIEND, SENDER, ["one@elsewhere.example"], size=SIZE_MAX + 1)
    client.session(FRIEND, SENDER, ["one@elsewhere.example"], data=DATA + b"x" * 70 * (SIZE_MAX // 70) + b"\r\n" * 99)
    for _ in range(14):  # two more than may be
        client.session(FLOOD, SENDER, ["known@ours.example"])


WANTED = {("5xx", "5.1.1"): 2, ("5xx", "5.7.1"): 1, ("5xx", "5.3.4"): 2, ("4xx", "4.7.1"): 2}


async def test_the_scrape_has_each_refusal_delivery_and_sync(tmp_path: Path) -> None:
    async with measured(tmp_path) as (core, client, page):
        await asyncio.to_thread(misbehave, client)
        await asyncio.to_thread(client.session, FRIEND, SENDER, ["a@grey.example", "b@elsewhere.example"])
        await core.until_accepted_is_removed()
        await core.until_empty()
        assert {key: count for key, count in client.refused.items() if count} == WANTED
        found = await until_scraped(core, page, WANTED)
        assert found.refusals == WANTED
        assert found.of("waypost_delivery_delay_seconds_count", "transport") == {("smtp",): 1 + 12 + 2}
        below = found.of("waypost_delivery_delay_seconds_bucket", "le")
        assert below["+Inf",] == 15
        assert below["0.5",] < 15, "the deferred one waited for a second"
        assert found.of("waypost_recipients_total", "outcome")["deferred",] >= 1
        assert found.of("waypost_accepted_messages_total") == {(): 14}
        syncs = found.of("waypost_sync_seconds_count", "process")
        assert syncs["manager",] > 0
        assert syncs["receiver",] >= 14


def falls(before: Scraped, after: Scraped) -> list[Any]:
    """The counters that are lower than before, or gone."""
    return [key for key, value in before.counters.items() if after.counters.get(key, -1.0) < value]


@pytest.mark.long
async def test_no_counter_goes_down_when_a_receiver_is_killed(tmp_path: Path) -> None:
    async with measured(tmp_path, processes=2) as (core, client, page):
        wanted: Counter[tuple[str, str]] = Counter()
        before = await scrape(core, page)
        for number in range(4):
            for _ in range(4):  # of both receivers, as the kernel chooses
                await asyncio.to_thread(client.session, UNKNOWN, SENDER, ["bad@ours.example"])
            wanted["5xx", "5.1.1"] = client.refused["5xx", "5.1.1"]
            after = await until_scraped(core, page, wanted)
            assert after.refusals == wanted
            assert not falls(before, after)
            await core.kill(f"receiver.{number % 2}")
            before = await scrape(core, page)
            assert not falls(after, before)


@pytest.mark.long
async def test_all_counts_since_the_manager_begin_again_with_it_and_those_of_mail_go_on(tmp_path: Path) -> None:
    """A reset that Prometheus knows: every one of these counters begins again, none keeps a part."""
    async with measured(tmp_path, processes=2) as (core, client, page):
        for _ in range(6):
            await asyncio.to_thread(client.session, UNKNOWN, SENDER, ["bad@ours.example", "known@ours.example"])
        await core.until_empty()
        before = await until_scraped(core, page, {("5xx", "5.1.1"): 6})
        await core.kill("manager")

        async def of_the_next() -> Scraped | None:
            found = await scrape(core, page)  # the page keeps an answer for a second
            return found if found.of("waypost_process_restarts_total", "process").get(("manager",)) else None

        after: Scraped = await core.eventually(of_the_next, "a scrape of the next manager")
        assert after.refusals == {}
        assert after.of("waypost_delivery_delay_seconds_count", "transport") == {}
        kept = [key for key in falls(before, after) if not str(key[0]).startswith(SINCE_THE_MANAGER)]
        assert not kept
        await asyncio.to_thread(client.session, UNKNOWN, SENDER, ["bad@ours.example"])
        assert (await until_scraped(core, page, {("5xx", "5.1.1"): 1})).refusals == {("5xx", "5.1.1"): 1}


SINCE_THE_MANAGER = ("waypost_refusals", "waypost_sync_seconds", "waypost_delivery_delay", "waypost_transport_")
