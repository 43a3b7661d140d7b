"""The portal's own metrics: who may read them, what is counted, and that all processes are in them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError
from django.http import StreamingHttpResponse
from django.test import Client, RequestFactory
from django.urls import include, path
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from prometheus_client.parser import text_string_to_metric_families as prometheus

from appliance.metrics.middleware import MetricsMiddleware
from appliance.metrics.names import NAMES
from appliance.metrics.views import may_read
from appliance.reports.models import Run, State
from tests.appliance.accounts.sample_users import client_of
from tests.test_tidy import ROOT

pytestmark = pytest.mark.django_db
urlpatterns = [path("", include("appliance.metrics.urls")), path("", include("appliance.urls"))]


@pytest.fixture(autouse=True)
def switched_on(settings: Any) -> None:
    settings.PORTAL = dataclasses.replace(settings.PORTAL, metrics_networks=("127.0.0.0/8", "2001:db8::/32"))
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["appliance.metrics.middleware.MetricsMiddleware", *settings.MIDDLEWARE]


def numbers() -> dict[tuple[str, ...], float]:
    """Each sample, by its name and labels: view before status and le."""
    response = Client().get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels, reverse=True))): sample.value
        for family in prometheus(response.content.decode())
        for sample in family.samples
    }


def test_requests_are_counted_by_page_and_never_by_address() -> None:
    before = numbers()
    client = client_of("viewer")
    client.get("/queue/")
    for number in range(20):
        client.get(f"/no/such/page/{number}")
        client.get(f"/queue/{number:016X}/")
    client_of("administrator").get("/admin/auth/user/")
    after = numbers()
    new = {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)}
    assert new["waypost_portal_requests_total", "none", "4xx"] == 20
    assert sum(count for (name, *labels), count in new.items() if name == "waypost_portal_requests_total") >= 42
    assert new["waypost_portal_requests_total", "admin", "2xx"] == 1
    assert new["waypost_portal_request_seconds_bucket", "none", "+Inf"] == 20
    views = {labels[0] for name, *labels in after if name == "waypost_portal_requests_total"}
    assert not any(each.isdigit() or "/" in each for each in views), views
    assert {
        name.removesuffix("_total") for name, *_ in after if not name.endswith(("_bucket", "_sum", "_count"))
    } <= set(NAMES)


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 200),
        ("2001:db8::1", 200),
        ("::ffff:127.0.0.9", 200),
        ("192.0.2.1", 404),
        ("2001:db9::1", 404),
        ("", 404),
    ],
)
def test_only_clients_of_the_networks_read_it(address: str, status: int) -> None:
    assert Client(REMOTE_ADDR=address).get("/metrics").status_code == status
    assert may_read(address, settings.PORTAL.metrics_networks) is (status == 200)


def test_without_the_setting_there_is_no_page() -> None:
    assert client_of("administrator").post("/metrics").status_code == 405
    settings.ROOT_URLCONF = "appliance.urls"
    assert client_of("administrator").get("/metrics").status_code == 404


def test_another_process_is_in_the_sums_and_a_dead_one_listens_no_more() -> None:
    script = (
        "from appliance.metrics.families import REQUESTS, STREAMS; "
        "REQUESTS.labels('other:page', '2xx').inc(7); STREAMS.inc(3)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=60)
    found = numbers()
    assert found["waypost_portal_requests_total", "other:page", "2xx"] == 7
    assert found.get(("waypost_portal_live_streams",), 0.0) == 0


@pytest.mark.parametrize("how", ["client left", "its end", "a fault"])
async def test_a_stream_counts_while_it_is_open(how: str) -> None:
    async def events() -> Any:
        yield b"one"
        if how == "a fault":
            raise ZeroDivisionError
        yield b"two"

    before = streams()
    response = MetricsMiddleware(lambda request: StreamingHttpResponse(events()))(RequestFactory().get("/"))
    assert isinstance(response, StreamingHttpResponse)
    assert streams() == before
    content = aiter(response)
    assert await anext(content) == b"one"
    assert streams() == before + 1
    if how == "a fault":
        with pytest.raises(ZeroDivisionError):
            await anext(content)
    elif how == "its end":
        assert [part async for part in content] == [b"two"]
    else:
        response.close()
    assert streams() == before
    response.close()
    assert streams() == before


def streams() -> float:
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    found = prometheus(generate_latest(registry).decode())
    return sum(
        each.value for family in found if family.name == "waypost_portal_live_streams" for each in family.samples
    )


def test_the_tasks_of_reports_and_the_age_of_the_last() -> None:
    assert ("waypost_portal_report_age_seconds",) not in numbers()  # there was none
    ended = datetime.now(UTC) - timedelta(hours=2)
    Run.objects.create(day=date(2026, 1, 1), state=State.DONE, ended_at=ended)
    Run.objects.create(day=date(2026, 1, 2), state=State.FAILED, ended_at=datetime.now(UTC))
    found = numbers()
    assert found["waypost_portal_reports", "done"] == found["waypost_portal_reports", "failed"] == 1
    assert found["waypost_portal_reports", "running"] == 0
    assert 7200 <= found["waypost_portal_report_age_seconds",] < 9000
    assert found["waypost_portal_database_up",] == 1


def test_a_database_that_does_not_answer_is_said_and_the_rest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OperationalError("down")

    monkeypatch.setattr(Run.objects, "order_by", fails)
    found = numbers()
    assert found["waypost_portal_database_up",] == 0
    assert not any(name.startswith("waypost_portal_report") for name, *_ in found)
    assert any(name == "waypost_portal_requests_total" for name, *_ in found)


@pytest.mark.long
def test_a_portal_without_the_setting_loads_nothing_of_it() -> None:
    script = (
        "import django, sys; django.setup(); import appliance.urls; "
        "from django.core.asgi import get_asgi_application as application; application(); "
        "assert 'prometheus_client' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120,
        env={"PATH": "/usr/bin", "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "tests.appliance.settings"},
    )  # fmt: skip
