"""Numbers and times: which parameter of Postfix is which setting here. Most have the same name."""

from __future__ import annotations

from mailcore.import_postfix.draft import Draft, Take
from mailcore.import_postfix.machine import Machine
from mailcore.import_postfix.values import ValueFault, seconds, truth

__all__ = ["DESTINATION", "measures"]

COUNT, TIME, HOURS, DAYS = Take(), Take("s"), Take("h"), Take("d")
NO_LIMIT = Take(zero="unlimited")

# Postfix's name, section, key, how it is read. Always written where Postfix's default is not ours.
MEASURES: tuple[tuple[str, str, str, Take], ...] = (
    ("message_size_limit", "receiver", "message_size_limit", NO_LIMIT),
    ("smtpd_recipient_limit", "receiver", "recipient_limit", COUNT),
    ("smtpd_client_connection_count_limit", "receiver", "connections_per_client_max", NO_LIMIT),
    ("smtpd_client_connection_rate_limit", "clients", "connection_rate_limit", COUNT),
    ("smtpd_client_message_rate_limit", "clients", "message_rate_limit", COUNT),
    ("smtpd_client_recipient_rate_limit", "clients", "recipient_rate_limit", COUNT),
    ("anvil_rate_time_unit", "clients", "rate_time_s", TIME),
    ("smtpd_client_ipv4_prefix_length", "clients", "ipv4_prefix_length", COUNT),
    ("smtpd_client_ipv6_prefix_length", "clients", "ipv6_prefix_length", COUNT),
    ("smtpd_junk_command_limit", "clients", "junk_command_limit", COUNT),
    ("smtpd_soft_error_limit", "clients", "soft_error_limit", COUNT),
    ("smtpd_error_sleep_time", "clients", "error_sleep_time_s", TIME),
    ("header_size_limit", "rewriting", "header_size_limit", COUNT),
    ("line_length_limit", "receiver", "command_line_limit", COUNT),
    ("smtpd_hard_error_limit", "receiver", "error_limit", COUNT),
    ("hopcount_limit", "receiver", "received_limit", COUNT),
    ("smtpd_timeout", "receiver", "idle_timeout_s", TIME),
    ("smtp_connect_timeout", "deliverer", "connect_timeout_s", Take("s", "the system's own limit")),
    ("smtp_helo_timeout", "deliverer", "greeting_timeout_s", TIME),
    ("smtp_data_xfer_timeout", "deliverer", "data_timeout_s", TIME),
    ("smtp_data_done_timeout", "deliverer", "final_timeout_s", TIME),
    ("smtp_connection_cache_time_limit", "deliverer", "connection_idle_s", TIME),
    ("smtp_connection_reuse_count_limit", "deliverer", "connection_uses_max", NO_LIMIT),
    ("smtp_mx_address_limit", "deliverer", "addresses_max", NO_LIMIT),
    ("qmgr_message_active_limit", "scheduler", "message_active_limit", COUNT),
    ("qmgr_message_recipient_limit", "scheduler", "message_recipient_limit", COUNT),
    ("qmgr_message_recipient_minimum", "scheduler", "message_recipient_minimum", COUNT),
    ("minimal_backoff_time", "scheduler", "minimal_backoff_time", TIME),
    ("maximal_backoff_time", "scheduler", "maximal_backoff_time", TIME),
    ("maximal_queue_lifetime", "scheduler", "maximal_queue_lifetime", DAYS),
    ("bounce_size_limit", "bounce", "bounce_size_limit", COUNT),
    ("delay_warning_time", "bounce", "delay_warning_time", HOURS),
    ("bounce_queue_lifetime", "scheduler", "bounce_queue_lifetime", DAYS),
    ("transport_retry_time", "scheduler", "transport_retry_time", TIME),
)
_UNLIKE_OURS = frozenset({"message_size_limit"})  # 10 MB in Postfix, 50 MB in Waypost: the old limit is kept

_FEEDBACK = Take("feedback")

# Parameters of a transport and its destinations: our key, and the name of Postfix's default; NAME_key is for one transport.
DESTINATION: tuple[tuple[str, str, Take], ...] = (
    ("initial_destination_concurrency", "initial_destination_concurrency", COUNT),
    ("destination_concurrency_limit", "default_destination_concurrency_limit", NO_LIMIT),
    ("destination_concurrency_positive_feedback", "default_destination_concurrency_positive_feedback", _FEEDBACK),
    ("destination_concurrency_negative_feedback", "default_destination_concurrency_negative_feedback", _FEEDBACK),
    ("destination_concurrency_failed_cohort_limit", "default_destination_concurrency_failed_cohort_limit", COUNT),
    ("destination_rate_delay", "default_destination_rate_delay", TIME),
    ("destination_recipient_limit", "default_destination_recipient_limit", NO_LIMIT),
    ("destination_concurrency_feedback_debug", "destination_concurrency_feedback_debug", Take("flag")),
    ("delivery_slot_cost", "default_delivery_slot_cost", COUNT),
    ("delivery_slot_loan", "default_delivery_slot_loan", COUNT),
    ("delivery_slot_discount", "default_delivery_slot_discount", COUNT),
    ("minimum_delivery_slots", "default_minimum_delivery_slots", COUNT),
    ("recipient_limit", "default_recipient_limit", COUNT),
    ("extra_recipient_limit", "default_extra_recipient_limit", COUNT),
    ("recipient_refill_limit", "default_recipient_refill_limit", COUNT),
    ("recipient_refill_delay", "default_recipient_refill_delay", TIME),
    ("transport_rate_delay", "default_transport_rate_delay", TIME),
)


def measures(machine: Machine, draft: Draft) -> None:
    """Sets all numbers and times of MEASURES and the settings that depend on them."""
    for name, section, key, take in MEASURES:
        if name in machine.cf or name in _UNLIKE_OURS:
            draft.measure(section, key, machine.look(name), take, machine.where(name), machine.what(name))
    _command_timeout(machine, draft)
    _cache(machine, draft)
    _reserve(machine, draft)
    _backoff(machine, draft)


def _command_timeout(machine: Machine, draft: Draft) -> None:
    """Translates two settings of Postfix into one: the longer."""
    names = [name for name in ("smtp_mail_timeout", "smtp_rcpt_timeout") if name in machine.cf]
    if not names:
        return
    texts = [machine.look(name) for name in ("smtp_mail_timeout", "smtp_rcpt_timeout")]
    try:
        longest = max(seconds(text) for text in texts)
    except ValueFault:
        longest = 300
    for name in names:
        draft.measure("deliverer", "command_timeout_s", str(longest), TIME, machine.where(name), machine.what(name))


def _cache(machine: Machine, draft: Draft) -> None:
    name = "smtp_connection_cache_on_demand"
    if name in machine.cf and not truth(machine.look(name)):
        draft.put("deliverer", "connection_idle_s", 0.0)
        draft.taken(
            machine.where(name), machine.what(name), "[deliverer] connection_idle_s = 0.0: no connection is kept"
        )


def _reserve(machine: Machine, draft: Draft) -> None:
    name = "queue_minfree"
    if name in machine.cf and machine.look(name) != "0":
        draft.measure("queue", "reserve_bytes", machine.cf.value(name), COUNT, machine.where(name), machine.what(name))


def _backoff(machine: Machine, draft: Draft) -> None:
    """Raises the longest wait to the shortest if it is shorter: Postfix accepts that, the configuration does not."""
    table = draft.sections.get("scheduler", {})
    shortest, longest = table.get("minimal_backoff_time", 300.0), table.get("maximal_backoff_time", 4000.0)
    if shortest > longest:
        draft.put("scheduler", "maximal_backoff_time", shortest)
        name = "maximal_backoff_time"
        said = f"is shorter than minimal_backoff_time; [scheduler] {name} = {shortest}"
        draft.changed(machine.where(name), machine.what(name), said)
