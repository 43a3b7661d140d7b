"""The lines of the mail log about accepting mail: connections, limits, and the files that rewrite addresses."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import client_text, free, seconds, word

__all__ = ["ReceiverLines"]


class ReceiverLines(Lines):
    """A part of ``MailLog``."""

    def stopped_accepting(self, why: str) -> None:
        """Logs that mail is not accepted because the lane cannot be written at all."""
        self._warning("smtpd", f"not accepting mail, the queue cannot be written: {free(why)}")
        self._object("stopped_accepting", why=why)

    def accepting_again(self) -> None:
        """Logs that a sync succeeded after ``stopped_accepting``."""
        self._line("smtpd", "accepting mail again")
        self._object("accepting_again")

    def accepting_paused(self, why: str, pause_s: float) -> None:
        """Logs that no connection can be accepted because descriptors or memory are missing; once until one can."""
        self._warning("smtpd", f"cannot accept connections: {free(why)}; next try in {seconds(pause_s)} s")
        self._object("accepting_paused", why=why, pause_s=pause_s)

    def stress(self, begun: bool, connections: int) -> None:
        """Logs that clients outside our networks hold most connections, so that slow ones are ended; or that this is over."""
        if begun:
            self._warning(
                "smtpd", f"{counted(connections, 'connection')} of clients outside [relay] networks; ending slow ones"
            )
        else:
            self._line(
                "smtpd",
                f"{counted(connections, 'connection')} of clients outside [relay] networks; waiting for slow ones again",
            )
        self._object("stress" if begun else "stress_ended", connections=connections)

    def rate_exceeded(self, kind: str, count: float, client_address: str, network: str) -> None:
        """Logs that a client's network is beyond a limit of [clients]. ``kind``: "Connection", "Recipient address"."""
        client = f"[{word(client_address)}] of network {word(network)}"
        self._warning("smtpd", f"{kind} rate limit exceeded: {count:.0f} from {client}")
        self._object("rate_exceeded", kind=kind, count=count, client_address=client_address, network=network)

    def proxy_refused(self, balancer: str, why: str) -> None:
        """Logs a connection of a load balancer that was closed because its PROXY header cannot be believed."""
        self._warning("smtpd", f"PROXY header from balancer [{word(balancer)}]: {free(why)}; connection closed")
        self._object("proxy_refused", balancer=balancer, why=why)

    def tls_failed(self, client_address: str, client_name: str, why: str) -> None:
        """Logs that TLS with a client failed: no handshake, or the client does not accept our certificate."""
        self._warning("smtpd", f"TLS with {client_text(client_name or 'unknown', client_address)} failed: {free(why)}")
        self._object("tls_failed", client_address=client_address, client_name=client_name, why=why)

    def lane_lags(self, lane: str, lag_bytes: int) -> None:
        """Logs that the manager does not read the lane as fast as it is written; new mail gets 452."""
        self._warning(
            "smtpd",
            f"lane {word(lane)} has {lag_bytes} bytes that the manager has not read; refusing new mail with 452",
        )
        self._object("lane_lags", lane=lane, lag_bytes=lag_bytes)

    def refusals_not_recorded(self, count: int) -> None:
        """Logs how many refusals were left out of log and lane, because there were too many per second."""
        self._warning("smtpd", f"{counted(count, 'refusal')} not recorded: too many per second")
        self._object("refusals_not_recorded", count=count)

    def maps_read(self, files: int) -> None:
        """Logs that files of [rewriting] changed, and are in use: maps of addresses, header checks."""
        self._line("cleanup", f"[rewriting]: {counted(files, 'file')} in use")
        self._object("maps_read", files=files)

    def maps_refused(self, faults: Sequence[str], *, in_use: bool) -> None:
        """Logs the faults of these files. ``in_use``: those that were read before; otherwise no mail is accepted."""
        then = "those read before stay in use" if in_use else "no mail is accepted"
        for fault in faults:
            self._warning("cleanup", f"[rewriting]: {free(fault)}; {then}")
        self._object("maps_refused", why="; ".join(faults), in_use=in_use)

    def rewriting_failed(self, queue_id: str, why: str) -> None:
        """Logs a message that gets 451 because its final recipients cannot be determined."""
        self._warning("cleanup", f"{queue_id}: {free(why)}; message not accepted, try again later")
        self._object("rewriting_failed", queue_id=queue_id, why=why)

    def session_failed(self, client_address: str, error: str) -> None:
        """Logs an exception in a session; the client was asked to try again later."""
        self._warning("smtpd", f"session with [{word(client_address)}] failed: {free(error)}")
        self._object("session_failed", client_address=client_address, error=error)
