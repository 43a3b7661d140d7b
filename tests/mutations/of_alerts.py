"""Ways to break alerts: one that is lost, is sent twice, or says that all is well when nothing is known."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

BOOK, OUTBOX, KILLS = (f"tests/appliance/alerts/test_{name}.py" for name in ("book", "outbox", "kills"))

MUTATIONS = [
    Mutation(
        "the watch keeps the settings of its start",
        "appliance/alerts/watching.py",
        "        if settings == self._settings:\n",
        "        if settings:\n",
        "tests/appliance/alerts/test_watching.py -k other_settings",
    ),
    Mutation(
        "an alert whose rule cannot be checked ends",
        "appliance/alerts/book.py",
        "    if judgement.unknown or held:",
        "    if held:",
        BOOK,
    ),
    Mutation(
        "a rule that fails is good",
        "appliance/alerts/rules.py",
        'found = Found(unknown=[Unknown(f"this rule failed: {type(error).__name__}: {error}")])',
        "found = Found(held={str(error)})",
        "tests/appliance/alerts/test_rules.py",
    ),
    Mutation(
        "an alert that flaps is sent each time",
        "appliance/alerts/book.py",
        " and not _sent_lately(alert, now, settings)",
        "",
        BOOK,
    ),
    Mutation(
        "an alert counts as sent before its notices are made",
        "appliance/alerts/book.py",
        "        _make_notices(nodes, ended, now, settings, targets)\n        _checked(judgements, now)\n",
        "        _checked(judgements, now)\n    if True:\n        _make_notices(nodes, ended, now, settings, targets)\n",
        KILLS,
    ),
    Mutation(
        "a notice counts as sent before it is sent",
        "appliance/alerts/outbox.py",
        "        try:\n            words = self._send(",
        "        Notice.objects.filter(pk__in=[notice.pk for notice in notices]).update(sent_at=now)\n"
        "        try:\n            words = self._send(",
        f"{OUTBOX} {KILLS}",
    ),
    Mutation(
        "a silence of one cause covers its rule",
        "appliance/alerts/models.py",
        "return self.cause == alert.cause if self.cause else self.rule == alert.rule",
        "return self.rule == alert.rule",
        BOOK,
    ),
    Mutation(
        "an alert that comes again is acknowledged as the one before",
        "appliance/alerts/book.py",
        "        alert = Alert(node=node, cause=cause.key, began_at=now, severity=str(cause.severity))",
        "        before = Alert.objects.filter(cause=cause.key).first()\n"
        "        alert = Alert(node=node, cause=cause.key, began_at=now, severity=str(cause.severity),\n"
        "                      acknowledged_at=before and before.acknowledged_at)",
        BOOK,
    ),
    Mutation(
        "how long a cause lasts is measured on the wall clock",
        "appliance/alerts/book.py",
        "        alert.true_s += elapsed_s\n",
        "        alert.true_s = (now - alert.began_at).total_seconds()\n",
        BOOK,
    ),
    Mutation(
        "recipients that are deferred count as ended for their sender domain",
        "mailcore/lookup/outcomes.py",
        "        elif verdict.status in (Status.BOUNCED, Status.EXPIRED):\n",
        "        else:\n",
        "tests/lookup/test_outcomes.py",
    ),
]
