"""The agreement with a filter, made once for a connection out of its negotiation: the steps that it gets and answers, their
macros, and the changes that it may make. Pure."""

from __future__ import annotations

from typing import NamedTuple

from mailcore.milter.macros import NO_MACROS, Names, names_of
from mailcore.milter.protocol import Action, Negotiated, Protocol, Reply, Step

__all__ = ["NOTHING", "Agreement", "StepPlan", "agreement"]

# The flags that leave out a step, and its answer.
_LEFT_OUT = {
    Step.CONNECT: (Protocol.NO_CONNECT, Protocol.NR_CONNECT),
    Step.HELO: (Protocol.NO_HELO, Protocol.NR_HELO),
    Step.MAIL: (Protocol.NO_MAIL, Protocol.NR_MAIL),
    Step.RCPT: (Protocol.NO_RCPT, Protocol.NR_RCPT),
    Step.DATA: (Protocol.NO_DATA, Protocol.NR_DATA),
    Step.UNKNOWN: (Protocol.NO_UNKNOWN, Protocol.NR_UNKNOWN),
    Step.HEADER: (Protocol.NO_HEADERS, Protocol.NR_HEADERS),
    Step.END_OF_HEADER: (Protocol.NO_END_OF_HEADER, Protocol.NR_END_OF_HEADER),
    Step.BODY: (Protocol.NO_BODY, Protocol.NR_BODY),
    Step.END_OF_BODY: (Protocol(0), Protocol(0)),
}
# The action that a filter must have negotiated for a change.
_CHANGES = {
    Reply.ADD_HEADER: Action.ADD_HEADERS,
    Reply.INSERT_HEADER: Action.ADD_HEADERS,
    Reply.CHANGE_HEADER: Action.CHANGE_HEADERS,
    Reply.REPLACE_BODY: Action.CHANGE_BODY,
    Reply.ADD_RECIPIENT: Action.ADD_RECIPIENTS,
    Reply.ADD_RECIPIENT_PARAMETERS: Action.ADD_RECIPIENTS_PARAMETERS,
    Reply.DELETE_RECIPIENT: Action.DELETE_RECIPIENTS,
    Reply.CHANGE_SENDER: Action.CHANGE_SENDER,
    Reply.QUARANTINE: Action.QUARANTINE,
}


class StepPlan(NamedTuple):
    """How a step is sent to a filter."""

    is_sent: bool
    is_answered: bool
    names: Names  # the macros that go before it


class Agreement(NamedTuple):
    """The agreement with one filter. ``changes`` says of each change whether the filter may make it, by its code."""

    plans: dict[Step, StepPlan]
    changes: dict[int, bool]
    keep_space: bool  # behind the colon of a header field
    refused_recipients: bool  # it sees recipients that we refuse


def agreement(negotiated: Negotiated) -> Agreement:
    """Returns the agreement that a negotiation makes."""
    steps, actions = int(negotiated.steps), int(negotiated.actions)
    plans = {
        step: StepPlan(not steps & no, not steps & unanswered, names_of(step, negotiated.macros))
        for step, (no, unanswered) in _FLAGS
    }
    changes = {code: bool(actions & action) for code, action in _ACTIONS}
    return Agreement(plans, changes, bool(steps & _LEADING_SPACE), bool(steps & _REFUSED_RECIPIENTS))


_FLAGS = [(step, (int(no), int(unanswered))) for step, (no, unanswered) in _LEFT_OUT.items()]
_ACTIONS = [(int(code), int(action)) for code, action in _CHANGES.items()]
_LEADING_SPACE = int(Protocol.LEADING_SPACE)
_REFUSED_RECIPIENTS = int(Protocol.REFUSED_RECIPIENTS)
NOTHING = Agreement({step: StepPlan(False, False, NO_MACROS) for step in _LEFT_OUT}, {}, False, False)
