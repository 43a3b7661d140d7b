"""The settings of the reports to senders. As all settings: values only, read by ``mailcore.config.load``."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, text, whole
from mailcore.config import values

__all__ = ["Bounce"]


@dataclass(frozen=True, kw_only=True)
class Bounce:
    """[bounce]: the reports to senders about mail that failed or is delayed."""

    bounce_size_limit: int = whole(
        50_000,
        0,
        10_000_000,
        "bytes",
        "a message up to this size comes back whole with its bounce, unless its sender asked for the header section "
        "(RET=HDRS); of a larger message only the header section comes back",
    )
    delay_warning_time: int = whole(
        0,
        0,
        30 * DAY_S,
        "seconds",
        "age at which the sender of a message that still waits for a recipient is warned, once for a message and at the "
        "end of a delivery attempt",
        special={0: "no warnings"},
    )
    double_bounce_recipient: str = text(
        "",
        "gets a report when a bounce, or other mail without a sender, can't be delivered; as Postfix's "
        "2bounce_notice_recipient with notify_classes = 2bounce",
        values.mailbox,
        special={"": "such mail ends in the log only"},
    )
