"""The sections [scheduler] and [transports.NAME]: parameters that the table of the scheduler defines."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mailcore.bounds import Bounds, Kind
from mailcore.config.cut_through import cut_through_of_transport, cut_through_wait_of_transport
from mailcore.config.ehlo_keywords import discarded_of_transport
from mailcore.config.protocol import (
    chunking_of_transport,
    conversion_of_transport,
    fallback_of_transport,
    line_length_of_transport,
    protocol_of_transport,
)
from mailcore.config.tls import level_of_transport
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, TRANSPORT_SCOPE

__all__ = ["Destination", "Scheduler", "Transport"]


def parameter(scope: Mapping[str, Bounds], name: str) -> Any:
    """Defines a field by the scheduler's own table; a feedback stays text, in its one spelling."""
    bounds = scope[name]
    if bounds.kind is Kind.FEEDBACK:
        bounds = dataclasses.replace(bounds, default=str(bounds.default), reader=_feedback)
    return field(default=bounds.default, metadata={"bounds": bounds})


def _feedback(given: object) -> str:
    return str(Feedback.parse(given))


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """[scheduler]: parameters of all transports. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

    message_active_limit: int = parameter(GLOBAL_SCOPE, "message_active_limit")
    message_recipient_limit: int = parameter(GLOBAL_SCOPE, "message_recipient_limit")
    message_recipient_minimum: int = parameter(GLOBAL_SCOPE, "message_recipient_minimum")
    minimal_backoff_time: float = parameter(GLOBAL_SCOPE, "minimal_backoff_time")
    maximal_backoff_time: float = parameter(GLOBAL_SCOPE, "maximal_backoff_time")
    maximal_queue_lifetime: float = parameter(GLOBAL_SCOPE, "maximal_queue_lifetime")
    bounce_queue_lifetime: float = parameter(GLOBAL_SCOPE, "bounce_queue_lifetime")
    transport_retry_time: float = parameter(GLOBAL_SCOPE, "transport_retry_time")
    idle_destination_limit: int = parameter(GLOBAL_SCOPE, "idle_destination_limit")
    deferred_active_share: float = parameter(GLOBAL_SCOPE, "deferred_active_share")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """[transports.NAME.destinations."PATTERN"]: parameters that differ for some destinations of a transport."""

    initial_destination_concurrency: int = parameter(DESTINATION_SCOPE, "initial_destination_concurrency")
    destination_concurrency_limit: int = parameter(DESTINATION_SCOPE, "destination_concurrency_limit")
    destination_concurrency_positive_feedback: str = parameter(
        DESTINATION_SCOPE, "destination_concurrency_positive_feedback"
    )
    destination_concurrency_negative_feedback: str = parameter(
        DESTINATION_SCOPE, "destination_concurrency_negative_feedback"
    )
    destination_concurrency_failed_cohort_limit: int = parameter(
        DESTINATION_SCOPE, "destination_concurrency_failed_cohort_limit"
    )
    destination_rate_delay: float = parameter(DESTINATION_SCOPE, "destination_rate_delay")
    destination_recipient_limit: int = parameter(DESTINATION_SCOPE, "destination_recipient_limit")
    destination_concurrency_feedback_debug: bool = parameter(
        DESTINATION_SCOPE, "destination_concurrency_feedback_debug"
    )


@dataclass(frozen=True, kw_only=True)
class Transport(Destination):
    """[transports.NAME]: parameters of one transport. Names and defaults are those of Postfix's queue manager, qmgr(8)."""

    process_limit: int = parameter(TRANSPORT_SCOPE, "process_limit")
    delivery_slot_cost: int = parameter(TRANSPORT_SCOPE, "delivery_slot_cost")
    delivery_slot_loan: int = parameter(TRANSPORT_SCOPE, "delivery_slot_loan")
    delivery_slot_discount: int = parameter(TRANSPORT_SCOPE, "delivery_slot_discount")
    minimum_delivery_slots: int = parameter(TRANSPORT_SCOPE, "minimum_delivery_slots")
    recipient_limit: int = parameter(TRANSPORT_SCOPE, "recipient_limit")
    extra_recipient_limit: int = parameter(TRANSPORT_SCOPE, "extra_recipient_limit")
    recipient_refill_limit: int = parameter(TRANSPORT_SCOPE, "recipient_refill_limit")
    recipient_refill_delay: float = parameter(TRANSPORT_SCOPE, "recipient_refill_delay")
    transport_rate_delay: float = parameter(TRANSPORT_SCOPE, "transport_rate_delay")
    tls: str = level_of_transport()
    protocol: str = protocol_of_transport()
    fallback_relay: tuple[str, ...] = fallback_of_transport()
    discard_ehlo_keywords: tuple[str, ...] = discarded_of_transport()
    mime_output_conversion: str = conversion_of_transport()
    chunking: str = chunking_of_transport()
    line_length_limit: int = line_length_of_transport()
    cut_through: bool = cut_through_of_transport()
    cut_through_wait_s: float = cut_through_wait_of_transport()
    destinations: dict[str, dict[str, Any]] = field(default_factory=dict)  # pattern -> the values set, of Destination
