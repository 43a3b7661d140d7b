"""``manage.py webhooks`` beside a core: its database, its webhooks, and the process, which is killed and started again."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.running.running_core import RunningCore
from tests.test_tidy import ROOT

__all__ = ["Sending"]


class Sending:
    def __init__(self, core: RunningCore) -> None:
        self.core = core
        self.database = core.home / "portal" / "portal.sqlite3"
        self.process: subprocess.Popen[bytes] | None = None
        self._output = core.home.parent / "webhooks.log"
        self._environment = {
            name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")
        } | {"WAYPOST_CONFIG": str(core.config), "DJANGO_SETTINGS_MODULE": "appliance.settings"}

    def prepare(self, *hooks: dict[str, Any]) -> None:
        """Makes the database, and these webhooks, which begin with what happens from now on."""
        self._manage("migrate", "--verbosity", "0")
        self._manage("shell", "--no-imports", "--command", (
            "import json\nfrom appliance.common.door import door_of\nfrom appliance.webhooks.models import Webhook\n"
            "from mailcore.control.protocol.events import EventBatch\n"
            "now = door_of('').ask('events', EventBatch, {'after': 'now', 'limit': 1}).cursor\n"
            f"for hook in json.loads({json.dumps(hooks)!r}):\n    Webhook.objects.create(cursor=now, **hook)\n"
        ))  # fmt: skip

    def _manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self._environment, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self) -> None:
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "webhooks", "--with-parent", str(os.getpid())], cwd=ROOT,
                env=self._environment, stdout=output, stderr=output,
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def hook(self, name: str) -> dict[str, Any]:
        """The row of a webhook."""
        with sqlite3.connect(self.database, timeout=30) as database:
            database.row_factory = sqlite3.Row
            row = database.execute("select * from webhooks_webhook where name = ?", (name,)).fetchone()
            return dict(row)

    def failures(self, name: str) -> list[dict[str, Any]]:
        number = self.hook(name)["id"]
        with sqlite3.connect(self.database, timeout=30) as database:
            database.row_factory = sqlite3.Row
            rows = database.execute("select * from webhooks_failure where webhook_id = ? order by id", (number,))
            return [dict(row) for row in rows]

    def output(self) -> str:
        return Path(self._output).read_text()
