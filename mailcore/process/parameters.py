"""From the settings to the scheduler's parameters: the scheduler knows no settings, the settings know no scheduler."""

from __future__ import annotations

from mailcore.scheduler.parameters import Parameters, TransportParameters
from mailcore.settings import Settings

__all__ = ["parameters_of"]


def parameters_of(settings: Settings) -> Parameters:
    transports = {
        name: TransportParameters(
            process_limit=transport.process_limit,
            destination_concurrency_limit=transport.destination_concurrency_limit,
            destination_recipient_limit=transport.destination_recipient_limit,
        )
        for name, transport in settings.transports.items()
    }
    scheduler = settings.scheduler
    return Parameters(
        message_active_limit=scheduler.message_active_limit,
        message_recipient_limit=scheduler.message_recipient_limit,
        message_recipient_minimum=scheduler.message_recipient_minimum,
        minimal_backoff_time=scheduler.minimal_backoff_time,
        maximal_backoff_time=scheduler.maximal_backoff_time,
        maximal_queue_lifetime=scheduler.maximal_queue_lifetime,
        bounce_queue_lifetime=scheduler.bounce_queue_lifetime,
        transport_retry_time=scheduler.transport_retry_time,
        transports=transports,
    )
