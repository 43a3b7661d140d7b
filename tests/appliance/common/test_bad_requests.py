"""A request with a wrong Host is one line in the log and a page; pages of errors need no manifest of static files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from appliance import settings as portal
from appliance import urls
from appliance.common.static_files import StaticFiles
from tests.appliance.accounts.sample_users import client_of
from tests.test_tidy import ROOT

HOSTS = ["evil.example", "127.0.0.1:x", "[::1", "a b", "<script>", "a" * 5_000, "\xff"]
REQUESTS = f"""
import django
django.setup()
from django.test import Client
for host in {HOSTS!r}:
    answer = Client().get("/accounts/login/", headers={{"host": host}})
    print(answer.status_code, "does not answer to this name" in answer.content.decode())
"""


def test_a_wrong_host_is_one_line_and_a_page() -> None:
    """In a process of its own, whose log is that of the portal."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.appliance.settings"}
    command = [sys.executable, "-c", REQUESTS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == ["400 True"] * len(HOSTS)
    lines = done.stderr.splitlines()
    assert len(lines) == len(HOSTS), done.stderr
    assert all("refused a request for host '" in line and len(line) < 300 for line in lines)


def fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a bug")


urlpatterns = [*urls.urlpatterns, path("fails/", fails, name="fails")]
handler400, handler429, handler500 = urls.handler400, urls.handler429, urls.handler500


@pytest.fixture
def production_files(settings: Any, tmp_path: Path) -> Path:
    """Static files as on a server, before any were collected."""
    (tmp_path / "static").mkdir()
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STORAGES = portal.STORAGES
    settings.ROOT_URLCONF = __name__
    return tmp_path / "static"


@pytest.mark.django_db
@pytest.mark.usefixtures("production_files")
def test_error_pages_work_without_the_manifest(caplog: pytest.LogCaptureFixture) -> None:
    client = client_of("viewer")
    client.raise_request_exception = False
    for url, status, words in (
        ("/no/such/page", 404, "Page not found"),
        ("/fails/", 500, "Portal error"),
        ("/audit/", 403, "Permission denied"),
        ("/positions/", 503, "The core is not running"),
    ):
        answer = client.get(url)
        assert answer.status_code == status, url
        assert words in answer.content.decode(), url
    assert "The manifest of static files is missing" in caplog.text


@pytest.mark.django_db
def test_with_the_manifest_names_have_their_hash(production_files: Path) -> None:
    call_command("collectstatic", interactive=False, verbosity=0)
    name = staticfiles_storage.url("appliance/waypost.css").removeprefix("/static/")
    assert name != "appliance/waypost.css"
    assert (production_files / name).is_file()
    assert name in Client().get("/accounts/login/").content.decode()


def test_a_single_file_that_a_package_lacks_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """The log of every first start said that pages have no styles, because of one script of another package."""
    storage = StaticFiles()
    storage.hashed_files = {"appliance/waypost.css": "appliance/waypost.1.css"}
    assert storage.stored_name("admin/js/jquery.js") == "admin/js/jquery.js"
    assert not caplog.records
    storage.hashed_files = {}
    assert storage.stored_name("admin/js/jquery.js") == "admin/js/jquery.js"
    assert len(caplog.records) == 1
