"""The portal of each release: its database is migrated by the code of today, and on that release's home its pages answer."""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from tests.backup.test_homes import HOMES, QUICK, unpacked
from tests.homes.make_portal import SECRET_KEY
from tests.running.running_core import RunningCore, route_to
from tests.test_tidy import ROOT

PORTALS = sorted((ROOT / "tests" / "homes").glob("*.portal.sqlite3.gz"))
# Signs in as people did then, and looks at every page that needs no more than its name, and at what they left.
SCRIPT = """
import asyncio
import time
import django
django.setup()
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.core.management import call_command
from django.test import Client
from django.urls import NoReverseMatch, reverse
from appliance.audit.models import Entry
from appliance.reports.models import Preferences, Run
from appliance.tuning.models import Change, Prediction
from tests.appliance.accounts.access import NEVER, TABLE, VIEWER
from tests.homes.portal_contents import PASSWORD, TAG, TOTP_SECRET, WHY

call_command("migrate", check_unapplied=True, verbosity=0)

def signed_in(name):
    client = Client(headers={"host": "127.0.0.1"})
    answer = client.post("/accounts/login/", {"login": name, "password": PASSWORD})
    assert answer.status_code == 302, name
    return client, answer["Location"]

client, _ = signed_in("vic")
assert client.get("/queue/").status_code == 200
assert client.get("/audit/").status_code == 403
client, _ = signed_in("olga")
assert client.get("/audit/").status_code == 200
assert client.get("/admin/").status_code == 403
client, where = signed_in("ina")
assert where.startswith("/accounts/two-factor/code/"), where
code = str(format_hotp_value(hotp_value(TOTP_SECRET, int(time.time()) // 30)))
assert client.post(where, {"code": code}).status_code == 302

async def whole(answer):
    return b"".join([piece async for piece in answer.streaming_content])

def page(path):
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code, answer.get("Location"))
    content = asyncio.run(whole(answer)) if getattr(answer, "is_async", False) else answer.getvalue()
    assert b"The core is not running" not in content, path
    return content.decode()

ASKED = {"queue:found": "?in=recipient&q=deferred@example.org", "routes:resolve": "?address=deferred@example.org"}
# Those of the past need a time; that of a new token asks for the password again.
NOT_ASKED = (
    "admin:login", "live:stream", "live:numbers", "account_token_new", "status:overview_then", "queue:then",
)
seen = 0
for name, (least, _) in TABLE.items():
    if least < VIEWER or least >= NEVER or name in NOT_ASKED or name.endswith("_stream"):  # TOKEN is above NEVER
        continue
    try:
        path = reverse(name) + ASKED.get(name, "")
    except NoReverseMatch:
        continue
    page(path)
    seen += 1
assert seen > 20, seen

why = WHY.replace("<b>", "&lt;b&gt;").replace("</b>", "&lt;/b&gt;")
assert "sign_in.failed" in page("/audit/?who=olga")
assert why in page(f"/audit/{Entry.objects.get(action='queue.hold').pk}/")
assert why in page("/tuning/history/")
change = Change.objects.get(returns=None)
assert why in page(f"/tuning/changes/{change.batch}/")
assert "All is as it was." in page(f"/tuning/predictions/{Prediction.objects.get().pk}/")
assert "it has just been delivered" in page(f"/queue/changes/{TAG}/")
for run in Run.objects.all():
    assert "a line" in page(f"/reports/runs/{run.pk}/"), run
assert "ops@example.org" in page("/settings/kinds/reports/")
assert "olga" in page(reverse("admin:auth_user_change", args=[change.user_id]))
assert Preferences.objects.get().zone == "Europe/Berlin"
print("all answered", seen)
"""


def test_each_released_version_has_its_portal() -> None:
    assert {path.name.removesuffix(".portal.sqlite3.gz") for path in PORTALS} >= {
        path.name.removesuffix(".tar.gz") for path in HOMES
    }


def put_into_place(packed: Path, place: Path) -> None:
    unpacked(packed.with_name(packed.name.replace(".portal.sqlite3.gz", ".tar.gz")), place)
    portal = place / "home" / "portal"
    (portal / "static").mkdir(parents=True)
    (portal / "portal.sqlite3").write_bytes(gzip.decompress(packed.read_bytes()))


@pytest.mark.parametrize("packed", PORTALS, ids=lambda path: path.name)
async def test_what_people_left_in_the_portal_of_a_release_is_there_after_the_migration(
    packed: Path, tmp_path: Path
) -> None:
    put_into_place(packed, tmp_path)
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        core = RunningCore(tmp_path, {"*": route_to(lab, 0)}, QUICK)
        environment = dict(os.environ) | {
            "WAYPOST_CONFIG": str(core.config), "WAYPOST_SECRET_KEY": SECRET_KEY, "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "tests.appliance.production",
        }  # fmt: skip
        environment.pop("DATABASE_URL", None)

        def manage(*words: str) -> str:
            done = subprocess.run(
                [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        await asyncio.to_thread(manage, "manage.py", "migrate", "--no-input")
        await core.start()
        try:
            assert "all answered" in await asyncio.to_thread(manage, "-c", SCRIPT)
        finally:
            await core.control.close()
            core.stop()
