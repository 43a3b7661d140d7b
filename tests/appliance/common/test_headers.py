"""What a browser is told with every answer, and that no page needs what it is told not to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from tests.appliance.accounts.sample_users import client_of
from tests.test_tidy import ROOT

HEADERS = {
    "Content-Security-Policy": "default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=()",
}
INLINE = re.compile(
    r"<script(?![^>]*\bsrc=)|<style\b|\sstyle\s*=|\son[a-z]+\s*=\s*[\"']|\bhx-on\b|\bhx-vars\b|\bhx-vals=[\"']js:|javascript:",
    re.IGNORECASE,
)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/accounts/login/", 200),
        ("/", 302),
        ("/no/such/page", 404),
        ("/static/there.css", 200),
        ("/static/not.css", 404),
    ],
)
def test_every_answer_has_them(path: str, status: int) -> None:
    (Path(settings.STATIC_ROOT) / "there.css").write_text("a {}")
    response = Client().get(path)
    assert response.status_code == status
    has_them(response.headers)
    assert ("no-store" in response.headers["Cache-Control"]) is (path != "/static/there.css")
    if response.streaming:
        b"".join(response)  # a file is closed at its end
    response.close()


@pytest.mark.django_db
def test_errors_have_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = client_of("viewer").get("/admin/")
    forged = client_of("operator", enforce_csrf_checks=True).post("/accounts/password/")
    client = client_of("operator")
    client.raise_request_exception = False
    monkeypatch.setattr("appliance.audit.views.page", lambda *_: 1 / 0)
    broken = client.get("/audit/")
    bad_host = Client(headers={"host": "evil.example"}).get("/")
    for response, status in ((refused, 403), (forged, 403), (broken, 500), (bad_host, 400)):
        assert response.status_code == status
        has_them(response.headers)
        assert response.headers["Cache-Control"] == "no-store"
        assert "appliance/waypost.css" in response.content.decode()
    assert "ZeroDivision" not in broken.content.decode()


def has_them(headers: object) -> None:
    for name, part in HEADERS.items():
        assert part in headers[name], name  # type: ignore[index]
    policy = headers["Content-Security-Policy"]  # type: ignore[index]
    assert "unsafe" not in policy
    assert "*" not in policy
    assert "frame-ancestors 'none'" in policy


def test_no_template_has_script_or_style_in_it() -> None:
    found = [
        (str(path.relative_to(ROOT)), match.group())
        for path in (ROOT / "templates").rglob("*.html")
        if path.parent.name != "mail"  # a mail carries its looks in itself, and no page shows it
        for match in INLINE.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "bad", ["<script>x</script>", '<p style="a">', "<a onclick='x'>", "<b hx-on:click=''>", "<style>"]
)
def test_the_search_for_inline_finds_it(bad: str) -> None:
    assert INLINE.search(bad)


@pytest.mark.parametrize("preload", [False, True])
def test_browsers_may_preload_the_host_only_if_the_operator_says_so(tmp_path: Path, preload: bool) -> None:
    """By the header of a page, in a process with settings of its own."""
    public = 'home = "."\n[portal]\npublic_url = "https://waypost.example.org:8443"\n'
    (tmp_path / "waypost.toml").write_text(public + ("hsts_preload = true\n" if preload else ""))
    environment = os.environ | {
        "WAYPOST_CONFIG": str(tmp_path / "waypost.toml"), "DJANGO_SETTINGS_MODULE": "tests.appliance.production",
    }  # fmt: skip
    asked = (
        "import django; django.setup(); from django.test import Client; "
        "print(Client().get('/static/none', headers={'host': 'waypost.example.org:8443', 'x-forwarded-proto': 'https'})"
        "['Strict-Transport-Security'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.strip() == "max-age=31536000; includeSubDomains" + ("; preload" if preload else "")


def test_ready_for_production(tmp_path: Path) -> None:
    """``manage.py check --deploy`` behind a proxy that speaks https; and what it says of cookies there."""
    (tmp_path / "waypost.toml").write_text('home = "."\n[portal]\npublic_url = "https://waypost.example.org"\n')
    environment = {
        name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "WAYPOST_SECRET_KEY")
    }
    environment |= {"WAYPOST_CONFIG": str(tmp_path / "waypost.toml"), "DJANGO_SETTINGS_MODULE": "appliance.settings"}
    checked = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "INFO"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "no issues" in checked.stdout
    asked = (
        "from django.conf import settings as s; print(s.SESSION_COOKIE_SECURE, s.CSRF_COOKIE_SECURE, s.SESSION_COOKIE_NAME, "
        "s.SECURE_SSL_REDIRECT, s.SECURE_HSTS_SECONDS > 0, 'waypost.example.org' in s.ALLOWED_HOSTS, s.DEBUG)"
    )
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", asked],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["True", "True", "__Host-waypost-session", "True", "True", "True", "False"]
