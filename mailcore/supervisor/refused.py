"""A start that is refused: why, in the log, and a rest under systemd, which tries again at once."""

from __future__ import annotations

import time

from mailcore.config.settings import Settings
from mailcore.maillog.maillog import MailLog
from mailcore.supervisor.service import Service

__all__ = ["refuse_start", "rest_under_systemd"]

REFUSED_REST_S = 5.0  # under systemd, whose RestartSec is shorter


def refuse_start(settings: Settings, service: Service, why: str) -> None:
    """Logs why nothing is started, and waits under systemd."""
    log = MailLog(settings.log_directory)
    log.start_refused(why)
    log.close()
    rest_under_systemd(service, why)


def rest_under_systemd(service: Service, why: str) -> None:
    """Waits if systemd started it, which starts it again at once. A disk that is mounted or has room later is found then."""
    service.status(f"not started: {why}")
    if service.is_watched_by_systemd:
        time.sleep(REFUSED_REST_S)
