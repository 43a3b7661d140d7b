"""The policy for evaluated messages: the field with the results, and whether a message is refused, held or taken.

Laws
- A field with our identifier that a client sent is always removed (RFC 8601 5).
- An evaluation that fails for a reason of ours is temperror for all results; it refuses for a time only by setting.
- A message that passes DMARC is never refused for SPF or a DKIM signature alone: it may have been forwarded.

Keeps law: forged-results-removed, law: check-loses-no-mail (docs/laws.md).
"""

from __future__ import annotations

import functools

from mailcore.authenticity.arc import ArcResult
from mailcore.authenticity.dkim import DkimResult
from mailcore.authenticity.dmarc import DmarcResult
from mailcore.authenticity.evaluation import Client, Evaluation, Evaluator
from mailcore.authenticity.identifier import NAME, claims
from mailcore.authenticity.results_field import results_value
from mailcore.authenticity.sender_check import Ask, CheckedMessage, Failed
from mailcore.authenticity.spf import SpfResult
from mailcore.config.authenticity import Authenticity

__all__ = ["Policy", "open_policy"]

_REFUSED_FROM = b"550 5.7.1 Error: the message must have one From field with one address"
_REFUSED_DKIM = b"550 5.7.20 Error: no valid DKIM signature found"
_LATER = b"451 4.7.1 Error: the sender cannot be checked now; try again later"
_FAILED = "the evaluation failed"


class Policy:
    """The ``SenderCheck`` of a receiver. ``failed`` gets what an evaluation raised, with the client's address."""

    def __init__(
        self,
        settings: Authenticity,
        authserv_id: str,
        evaluator: Evaluator,
        failed: Failed,
    ) -> None:
        self._settings = settings
        self._authserv_id = authserv_id
        self._evaluator = evaluator
        self._failed = failed

    def is_for(self, purpose: str) -> bool:
        """Returns whether mail to the listeners with this purpose is evaluated; elsewhere forged results are removed."""
        return self._settings.evaluate in ("all", purpose)

    async def examine(self, message: CheckedMessage, address: str, helo: str, *, is_ours: bool) -> bytes:
        """Evaluates a message, unless it is ours; returns the reply that refuses it, or b""."""
        if is_ours:
            self._remove_forged(message)
            return b""
        client = Client(address, helo, message.sender)
        try:
            found = await self._evaluator.evaluate(client, message.fields.of_client, message.body.blocks())
        except OSError:  # of the data itself: the session knows the reply
            raise
        except Exception as error:
            self._failed(address, error)
            found = _unknown(client)
        self._remove_forged(message)
        message.fields.insert(1, NAME, self._results(found, client), keep_space=False)
        message.authentication = found.summary
        return self._decision(message, found)

    def _remove_forged(self, message: CheckedMessage) -> None:
        message.fields.remove(NAME, functools.partial(claims, authserv_id=self._authserv_id))

    def _results(self, found: Evaluation, client: Client) -> bytes:
        spf = [("smtp.helo", found.helo, client.helo)]
        if client.sender:
            spf.append(("smtp.mailfrom", found.mail_from, client.sender))
        return results_value(self._authserv_id, spf, found.signatures, found.arc, found.dmarc)

    def _decision(self, message: CheckedMessage, found: Evaluation) -> bytes:
        settings, dmarc = self._settings, found.dmarc
        if settings.bad_from == "reject" and dmarc.result == "permerror":
            return _REFUSED_FROM
        if dmarc.result == "pass":
            return b""
        if dmarc.policy == "reject" and settings.dmarc == "reject":
            return f"550 5.7.1 Error: mail of {dmarc.domain} is refused by the DMARC policy of this domain".encode()
        if settings.spf_fail == "reject" and found.mail_from.result == "fail":
            return b"550 5.7.23 Error: SPF validation failed: the sender's domain does not allow this client"
        if settings.dkim_fail == "reject" and found.dkim not in ("pass", "none", "temperror"):
            return _REFUSED_DKIM
        if settings.temperror == "defer" and "temperror" in (found.mail_from.result, found.dkim, dmarc.result):
            return _LATER
        if dmarc.policy != "none" and settings.dmarc != "none":
            reason = f"DMARC of {dmarc.domain} wants {dmarc.policy}"
            if settings.quarantine == "hold":
                message.held_because = reason
            else:
                message.fields.insert(2, b"X-Quarantine", reason.encode(), keep_space=False)
        return b""


def open_policy(settings: Authenticity, hostname: str, ask: Ask, failed: Failed) -> Policy:
    """Returns the check of a receiver. ``hostname`` is our name; ``ask`` asks the DNS."""
    return Policy(settings, settings.authserv_id or hostname, Evaluator(settings, ask), failed)


def _unknown(client: Client) -> Evaluation:
    """Returns the results of an evaluation that failed."""
    domain = client.sender.rpartition("@")[2]
    return Evaluation(
        SpfResult("temperror", client.helo, _FAILED),
        SpfResult("temperror", domain or client.helo, _FAILED),
        (DkimResult("temperror", reason=_FAILED),),
        ArcResult("none"),
        DmarcResult("temperror", reason=_FAILED),
    )
