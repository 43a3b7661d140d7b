"""The operations of the HTTP API, a method each.

Made by clients/python/generate.py from the OpenAPI document; do not edit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from waypost_client import models
from waypost_client.transport import Transport

__all__ = ["Waypost"]


class Waypost(Transport):
    """Asks a Waypost by its HTTP API. Each method raises WaypostError."""

    def alerts(
        self,
        *,
        state: Literal["waiting", "open", "ended"] | None = None,
        rule: Literal[
            "core_away",
            "active_set_full",
            "destination_dead",
            "tls_failing",
            "queue_age",
            "queue_growth",
            "bounces",
            "sender_bounces",
            "tls_clear",
            "disk",
            "certificate",
            "dkim",
            "balance",
            "report_missing",
            "replication",
            "webhook",
            "not_checked",
            "watch_away",
            "database",
        ]
        | None = None,
        cursor: int | None = None,
        limit: int | None = None,
    ) -> models.AlertList:
        """Lists alerts, newest first, and the silences in force. Needs the scope `alerts` or `read`."""
        return self.ask(
            "GET",
            "/api/v1/alerts",
            models.AlertList,
            query={"state": state, "rule": rule, "cursor": cursor, "limit": limit},
        )

    def alert(self, number: int) -> models.AlertFound:
        """Returns an alert with what was sent about it. Needs the scope `alerts` or `read`."""
        return self.ask("GET", f"/api/v1/alerts/{self.quoted(number)}", models.AlertFound)

    def acknowledge_alert(
        self, number: int, body: models.AcknowledgeBody, *, key: str | None = None
    ) -> models.AlertShown:
        """Notes that an operator knows of an open alert. It stays open until its cause is gone. Needs the scope
        `alerts`, and the role operator.
        """
        return self.ask(
            "POST", f"/api/v1/alerts/{self.quoted(number)}/acknowledge", models.AlertShown, body=body, key=key
        )

    def silence_alert(self, number: int, body: models.SilenceBody, *, key: str | None = None) -> models.SilenceShown:
        """Sends nothing about the cause of an alert for some time. The alert is listed all the same. Needs the scope
        `alerts`, and the role operator.
        """
        return self.ask(
            "POST", f"/api/v1/alerts/{self.quoted(number)}/silence", models.SilenceShown, body=body, key=key
        )

    def alert_rules(self) -> models.RuleList:
        """Lists the rules: when each was last checked, what it found, and its settings. Needs the scope `alerts` or
        `read`.
        """
        return self.ask("GET", "/api/v1/alert-rules", models.RuleList)

    def silence_rule(
        self,
        rule: Literal[
            "core_away",
            "active_set_full",
            "destination_dead",
            "tls_failing",
            "queue_age",
            "queue_growth",
            "bounces",
            "sender_bounces",
            "tls_clear",
            "disk",
            "certificate",
            "dkim",
            "balance",
            "report_missing",
            "replication",
            "webhook",
            "not_checked",
            "watch_away",
            "database",
        ],
        body: models.SilenceBody,
        *,
        key: str | None = None,
    ) -> models.SilenceShown:
        """Sends nothing about any cause of a rule for some time. Needs the scope `alerts`, and the role operator."""
        return self.ask(
            "POST", f"/api/v1/alert-rules/{self.quoted(rule)}/silence", models.SilenceShown, body=body, key=key
        )

    def end_silence(self, number: int, body: models.AcknowledgeBody, *, key: str | None = None) -> models.SilenceShown:
        """Ends a silence now. Open alerts that it covered are sent. Needs the scope `alerts`, and the role operator."""
        return self.ask(
            "POST", f"/api/v1/alert-silences/{self.quoted(number)}/end", models.SilenceShown, body=body, key=key
        )

    def alert_notices(self, *, limit: int | None = None) -> models.NoticeList:
        """Lists the notices that wait, oldest first, and the latest that were sent or dropped. Needs the scope
        `alerts` or `read`.
        """
        return self.ask("GET", "/api/v1/alert-notices", models.NoticeList, query={"limit": limit})

    def test_alerts(self, body: models.AcknowledgeBody, *, key: str | None = None) -> models.Tested:
        """Leaves a test for each target of [alerts], which the watch sends within its interval. Needs the scope
        `alerts`, and the role operator.
        """
        return self.ask("POST", "/api/v1/alert-notices/test", models.Tested, body=body, key=key)

    def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        outcome: Literal["done", "refused", "unknown"] | None = None,
        since: str | None = None,
        until: str | None = None,
        node: str | None = None,
        text: str | None = None,
        cursor: int | None = None,
        limit: int | None = None,
    ) -> models.AuditPage:
        """Lists the entries of the audit log, newest first. Needs the scope `read`, and the role operator."""
        return self.ask(
            "GET",
            "/api/v1/audit",
            models.AuditPage,
            query={
                "who": who,
                "action": action,
                "subject": subject,
                "outcome": outcome,
                "since": since,
                "until": until,
                "node": node,
                "text": text,
                "cursor": cursor,
                "limit": limit,
            },
        )

    def audit_entry(self, number: int) -> models.AuditEntry:
        """Returns one entry of the audit log. Needs the scope `read`, and the role operator."""
        return self.ask("GET", f"/api/v1/audit/{self.quoted(number)}", models.AuditEntry)

    def send(
        self,
        body: bytes | models.MessageBody,
        *,
        sender: str | None = None,
        recipient: Sequence[str] | None = None,
        not_before: float | None = None,
        key: str | None = None,
    ) -> models.Sent:
        """Hands in a message, and answers when it is in the queue and synced. The body is the message
        (message/rfc822), with sender and recipients in the address, or JSON with all of these. Send an
        Idempotency-Key, and repeat the request with it when no answer came: the message is queued once. With
        variables each recipient gets a message; unsent names those whose message could not be queued when others
        were. Needs the scope `send`, and the role operator.
        """
        return self.ask(
            "POST",
            "/api/v1/messages",
            models.Sent,
            query={"sender": sender, "recipient": recipient, "not_before": not_before},
            body=body,
            key=key,
        )

    def destinations(
        self, *, name: str | None = None, trouble: bool | None = None, limit: int | None = None
    ) -> models.DestinationList:
        """Lists destinations. Needs the scope `read`."""
        return self.ask(
            "GET",
            "/api/v1/destinations",
            models.DestinationList,
            query={"name": name, "trouble": trouble, "limit": limit},
        )

    def suspend(self, body: models.SuspendBody, *, key: str | None = None) -> models.Suspended:
        """Suspends a destination: no new delivery starts; its mail stays in the queue. Needs the scope `tune`, and
        the role operator.
        """
        return self.ask("POST", "/api/v1/destinations/suspend", models.Suspended, body=body, key=key)

    def resume(self, body: models.ResumeBody, *, key: str | None = None) -> models.Resumed:
        """Resumes a destination; a dead one is tried now, too. Needs the scope `tune`, and the role operator."""
        return self.ask("POST", "/api/v1/destinations/resume", models.Resumed, body=body, key=key)

    def events(
        self,
        *,
        kind: Sequence[Literal["accepted", "delivered", "deferred", "bounced", "expired", "deleted"]] | None = None,
        tag: str | None = None,
        sender_domain: str | None = None,
        recipient_domain: str | None = None,
        login: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        past_lost: bool | None = None,
    ) -> models.Events:
        """Lists what became of messages, from a position on. 404 with the argument after: events behind the cursor
        are not kept any more; the message says from when on they are. Needs the scope `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/events",
            models.Events,
            query={
                "kind": kind,
                "tag": tag,
                "sender_domain": sender_domain,
                "recipient_domain": recipient_domain,
                "login": login,
                "after": after,
                "limit": limit,
                "past_lost": past_lost,
            },
        )

    def events_stream(
        self,
        *,
        kind: Sequence[Literal["accepted", "delivered", "deferred", "bounced", "expired", "deleted"]] | None = None,
        tag: str | None = None,
        sender_domain: str | None = None,
        recipient_domain: str | None = None,
        login: str | None = None,
        after: str | None = None,
    ) -> bytes:
        """Streams what becomes of messages, as server-sent events. The last event of a batch has the cursor as its
        id; a client that connects again sends it as Last-Event-ID, or as after. Needs the scope `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/events/stream",
            bytes,
            query={
                "kind": kind,
                "tag": tag,
                "sender_domain": sender_domain,
                "recipient_domain": recipient_domain,
                "login": login,
                "after": after,
            },
        )

    def certificates(self) -> models.KeptFiles:
        """Lists the certificates that Waypost keeps, and the settings that use them. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/certificates", models.KeptFiles)

    def add_certificate(self, body: models.CertificateBody, *, key: str | None = None) -> models.FileKept:
        """Checks a certificate and its key, and keeps them. Needs the scope `settings`, and the role administrator."""
        return self.ask("POST", "/api/v1/certificates", models.FileKept, body=body, key=key)

    def certificate_text(self, *, file: str) -> models.KeptText:
        """Returns a certificate and its chain as PEM, without its key. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/certificates/text", models.KeptText, query={"file": file})

    def make_certificate(self, body: models.NewCertificateBody, *, key: str | None = None) -> models.FileKept:
        """Makes a key, and a certificate that it signs itself. Needs the scope `settings`, and the role
        administrator.
        """
        return self.ask("POST", "/api/v1/certificates/self-signed", models.FileKept, body=body, key=key)

    def request_certificate(self, body: models.RequestBody, *, key: str | None = None) -> models.FileKept:
        """Makes a key, and a request for an authority. The signed certificate is then added without a key. Needs the
        scope `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/certificates/request", models.FileKept, body=body, key=key)

    def dkim_keys(self) -> models.KeptFiles:
        """Lists the DKIM keys that Waypost keeps, with the DNS record of each, and the settings that use them. Needs
        the scope `read`.
        """
        return self.ask("GET", "/api/v1/dkim-keys", models.KeptFiles)

    def make_dkim_key(self, body: models.NewDkimBody, *, key: str | None = None) -> models.FileKept:
        """Makes a DKIM key. The answer has the record to publish. Needs the scope `settings`, and the role
        administrator.
        """
        return self.ask("POST", "/api/v1/dkim-keys", models.FileKept, body=body, key=key)

    def dkim_record(self, *, file: str) -> models.DkimRecord:
        """Looks up the DNS record of a key, and compares it with the key. It may take five seconds. Needs the scope
        `read`.
        """
        return self.ask("GET", "/api/v1/dkim-keys/record", models.DkimRecord, query={"file": file})

    def use_dkim_key(self, body: models.UseDkimBody, *, key: str | None = None) -> models.KeptUse:
        """Returns the changes of settings that sign with a key, if its record is published. Nothing is changed.
        Needs the scope `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/dkim-keys/use", models.KeptUse, body=body, key=key)

    def maps(self) -> models.KeptFiles:
        """Lists the maps that Waypost keeps, and the settings that use them. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/maps", models.KeptFiles)

    def put_map(self, body: models.MapBody, *, key: str | None = None) -> models.FileKept:
        """Checks the lines of a map, and keeps it. Needs the scope `settings`, and the role administrator."""
        return self.ask("POST", "/api/v1/maps", models.FileKept, body=body, key=key)

    def map_text(self, *, file: str) -> models.KeptText:
        """Returns the lines of a map. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/maps/text", models.KeptText, query={"file": file})

    def use_kept_file(self, body: models.UseBody, *, key: str | None = None) -> models.KeptUse:
        """Returns the changes of settings that use a kept file, or end its use; for a change of settings. Nothing is
        changed. Needs the scope `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/kept-files/use", models.KeptUse, body=body, key=key)

    def remove_kept_file(self, body: models.RemoveFileBody, *, key: str | None = None) -> models.FileRemoved:
        """Removes a kept file that no setting uses, such as a key that others know. Needs the scope `settings`, and
        the role administrator.
        """
        return self.ask("POST", "/api/v1/kept-files/remove", models.FileRemoved, body=body, key=key)

    def log_lines(
        self,
        *,
        queue_id: str | None = None,
        sender: str | None = None,
        recipient: str | None = None,
        destination: str | None = None,
        client: str | None = None,
        status: Literal["sent", "deferred", "bounced", "expired"] | None = None,
        event: str | None = None,
        level: Literal["info", "warning", "error"] | None = None,
        before: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> models.LogLines:
        """Lists lines of the mail log, the last that match, oldest first. ``older`` of the answer is the cursor of
        the lines before them ("": there are none), ``newest`` that of new lines. With ``after`` these are the
        last lines written since. If there are more than ``limit``, ``note`` says so, and the others are before
        ``older``. Needs the scope `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/log",
            models.LogLines,
            query={
                "queue_id": queue_id,
                "sender": sender,
                "recipient": recipient,
                "destination": destination,
                "client": client,
                "status": status,
                "event": event,
                "level": level,
                "before": before,
                "after": after,
                "limit": limit,
            },
        )

    def mail_users(self) -> models.Users:
        """Lists the users who log in to send mail, with the limits of [auth]. Needs the scope `read` or `users`."""
        return self.ask("GET", "/api/v1/mail-users", models.Users)

    def add_mail_user(self, body: models.NewMailUserBody, *, key: str | None = None) -> models.MailUserPut:
        """Adds a user. It can log in within two seconds. Needs the scope `users`, and the role administrator."""
        return self.ask("POST", "/api/v1/mail-users", models.MailUserPut, body=body, key=key)

    def change_mail_user(self, body: models.MailUserBody, *, key: str | None = None) -> models.MailUserPut:
        """Changes a user: its password, senders or limits, or whether it is enabled. With another password its
        sessions end. Needs the scope `users`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/mail-users/change", models.MailUserPut, body=body, key=key)

    def remove_mail_user(self, body: models.RemoveMailUserBody, *, key: str | None = None) -> models.MailUserRemoved:
        """Removes a user. Needs the scope `users`, and the role administrator."""
        return self.ask("POST", "/api/v1/mail-users/remove", models.MailUserRemoved, body=body, key=key)

    def settings(self) -> models.SettingsKnown:
        """Lists the settings that are set, each with its origin, whether they are in force, and the result of the
        last reload. Needs the scope `read`.
        """
        return self.ask("GET", "/api/v1/settings", models.SettingsKnown)

    def change_settings(self, body: models.SettingsBody, *, key: str | None = None) -> models.SettingsChanged:
        """Changes managed settings, or returns to an earlier state. A reload follows. They are in force when
        ``in_force`` of the settings says so; processes that use them start again, and answers may fail with 503
        meanwhile. Needs the scope `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/settings", models.SettingsChanged, body=body, key=key)

    def settings_history(self, *, limit: int | None = None) -> models.SettingsHistory:
        """Lists earlier states of the managed settings, newest first, each with the change that made it. Needs the
        scope `read`.
        """
        return self.ask("GET", "/api/v1/settings/history", models.SettingsHistory, query={"limit": limit})

    def settings_export(self) -> models.SettingsExport:
        """Returns all settings that can be managed as one TOML text, for ``toml`` of a change elsewhere. Needs the
        scope `read`.
        """
        return self.ask("GET", "/api/v1/settings/export", models.SettingsExport)

    def check_settings(self, body: models.SettingsCheckBody, *, key: str | None = None) -> models.SettingsChanged:
        """Returns what a change would change and restart, or its faults; nothing is changed. Needs the scope
        `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/settings/check", models.SettingsChanged, body=body, key=key)

    def effects_of_settings(self, body: models.SettingsCheckBody, *, key: str | None = None) -> models.SettingsEffects:
        """Returns what a change would do to queued mail, to clients of the last week, and to next hops; nothing is
        changed. It looks for up to ten seconds, and says what it did not reach. Needs the scope `settings`, and
        the role administrator.
        """
        return self.ask("POST", "/api/v1/settings/effects", models.SettingsEffects, body=body, key=key)

    def nodes(self) -> models.Nodes:
        """Returns the nodes that share a database, who owns which shard, and the servers that keep them. Needs the
        scope `read`.
        """
        return self.ask("GET", "/api/v1/nodes", models.Nodes)

    def move_shard(self, body: models.MoveBody, *, key: str | None = None) -> models.NodeOrdered:
        """Orders that a node gets a shard; the answer comes before it has it. Needs the scope `tune`, and the role
        operator.
        """
        return self.ask("POST", "/api/v1/nodes/move", models.NodeOrdered, body=body, key=key)

    def drain_node(self, body: models.NodeBody, *, key: str | None = None) -> models.NodeOrdered:
        """Orders that a node moves its shards to others and takes none; the answer comes before it is empty. Needs
        the scope `tune`, and the role operator.
        """
        return self.ask("POST", "/api/v1/nodes/drain", models.NodeOrdered, body=body, key=key)

    def resume_node(self, body: models.NodeBody, *, key: str | None = None) -> models.NodeOrdered:
        """Orders that a node takes shards again. Needs the scope `tune`, and the role operator."""
        return self.ask("POST", "/api/v1/nodes/resume", models.NodeOrdered, body=body, key=key)

    def overview(self) -> models.Overview:
        """Returns the state of the appliance now. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/overview", models.Overview)

    def own_token(self) -> models.OwnToken:
        """Returns what the token that asks is: its user, scopes and end. Needs a valid token."""
        return self.ask("GET", "/api/v1/token", models.OwnToken)

    def messages(
        self,
        *,
        sender: str | None = None,
        recipient: str | None = None,
        destination: str | None = None,
        lane: str | None = None,
        reason: str | None = None,
        older_than_s: float | None = None,
        younger_than_s: float | None = None,
        larger_than_bytes: int | None = None,
        smaller_than_bytes: int | None = None,
        arrived_before: float | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.MessagesPage:
        """Lists the messages of the queue, those that fulfil all conditions, page by page. Ask again with the
        answer's cursor until it is null. A page may be shorter than its limit: reading stops after a second.
        Needs the scope `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/queue/messages",
            models.MessagesPage,
            query={
                "sender": sender,
                "recipient": recipient,
                "destination": destination,
                "lane": lane,
                "reason": reason,
                "older_than_s": older_than_s,
                "younger_than_s": younger_than_s,
                "larger_than_bytes": larger_than_bytes,
                "smaller_than_bytes": smaller_than_bytes,
                "arrived_before": arrived_before,
                "cursor": cursor,
                "limit": limit,
            },
        )

    def message(self, queue_id: str) -> models.MessageFound:
        """Returns one message, queued or finished, with its first recipients and its history. Needs the scope
        `read`.
        """
        return self.ask("GET", f"/api/v1/queue/messages/{self.quoted(queue_id)}", models.MessageFound)

    def recipients(self, queue_id: str, *, start: int | None = None) -> models.RecipientsPage:
        """Lists the recipients of a message from a place on, 200 at most. Needs the scope `read`."""
        return self.ask(
            "GET",
            f"/api/v1/queue/messages/{self.quoted(queue_id)}/recipients",
            models.RecipientsPage,
            query={"start": start},
        )

    def message_data(self, queue_id: str) -> bytes:
        """Returns a whole queued message as it was received. The user of the token needs the right to read bodies.
        Needs the scope `body`.
        """
        return self.ask("GET", f"/api/v1/queue/messages/{self.quoted(queue_id)}/data", bytes)

    def past_size(self, *, at: float) -> models.SizeAtPart:
        """Returns the size of the queue at a moment, from events. ``complete`` says whether it agrees with a count
        of the queue; otherwise ``missing`` and ``note`` say what is not known. Needs the scope `read`.
        """
        return self.ask("GET", "/api/v1/queue/past/size", models.SizeAtPart, query={"at": at})

    def past_messages(
        self,
        *,
        at: float,
        sender: str | None = None,
        recipient: str | None = None,
        destination: str | None = None,
        lane: str | None = None,
        reason: str | None = None,
        older_than_s: float | None = None,
        younger_than_s: float | None = None,
        larger_than_bytes: int | None = None,
        smaller_than_bytes: int | None = None,
        arrived_before: float | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.ListAtPart:
        """Lists the messages that were queued at a moment, in the order of their arrival, page by page, from events.
        Ask again with the same moment and the answer's cursor until it is null. Needs the scope `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/queue/past/messages",
            models.ListAtPart,
            query={
                "sender": sender,
                "recipient": recipient,
                "destination": destination,
                "lane": lane,
                "reason": reason,
                "older_than_s": older_than_s,
                "younger_than_s": younger_than_s,
                "larger_than_bytes": larger_than_bytes,
                "smaller_than_bytes": smaller_than_bytes,
                "arrived_before": arrived_before,
                "at": at,
                "cursor": cursor,
                "limit": limit,
            },
        )

    def past_message(self, queue_id: str, *, at: float) -> models.PastMessage:
        """Returns the history of a message until a moment. Needs the scope `read`."""
        return self.ask(
            "GET", f"/api/v1/queue/past/messages/{self.quoted(queue_id)}", models.PastMessage, query={"at": at}
        )

    def parameters(self, *, scope: str | None = None) -> models.ScopeParameters:
        """Returns the parameters of a scope, with the values in force and where they come from. Needs the scope
        `read`.
        """
        return self.ask("GET", "/api/v1/tuning", models.ScopeParameters, query={"scope": scope})

    def set_parameters(self, body: models.SetBody, *, key: str | None = None) -> models.TuningChanges:
        """Sets and removes values of a scope, all checked before the first is sent. Each change has an outcome of
        its own in the answer: after the first that fails, nothing more is sent. Needs the scope `tune`, and the
        role operator.
        """
        return self.ask("POST", "/api/v1/tuning", models.TuningChanges, body=body, key=key)

    def tuning_changes(
        self,
        *,
        cursor: int | None = None,
        limit: int | None = None,
        scope: str | None = None,
        parameter: str | None = None,
        batch: str | None = None,
    ) -> models.TuningChanges:
        """Lists changes of parameters, newest first: all, those of a scope or a parameter, those that were made
        together. Needs the scope `read` or `tune`.
        """
        return self.ask(
            "GET",
            "/api/v1/tuning/changes",
            models.TuningChanges,
            query={"cursor": cursor, "limit": limit, "scope": scope, "parameter": parameter, "batch": batch},
        )

    def check_parameters(self, body: models.CheckBody, *, key: str | None = None) -> models.CheckedChanges:
        """Returns the values in force beside those that would be set, and what the core would refuse. Nothing is
        changed. Needs the scope `tune`, and the role operator.
        """
        return self.ask("POST", "/api/v1/tuning/check", models.CheckedChanges, body=body, key=key)

    def what_if(self, body: models.WhatIfBody, *, key: str | None = None) -> models.PredictionShown:
        """Simulates the queued mail with other values, and answers when the simulation has ended: up to some
        minutes. Nothing is changed. The number of the answer can be given with the change, so that the history
        shows both. Needs the scope `tune`, and the role operator.
        """
        return self.ask("POST", "/api/v1/tuning/what-if", models.PredictionShown, body=body, key=key)

    def prediction(self, number: int) -> models.PredictionShown:
        """Returns a stored what-if. Needs the scope `read` or `tune`."""
        return self.ask("GET", f"/api/v1/tuning/predictions/{self.quoted(number)}", models.PredictionShown)

    def changes(self, *, limit: int | None = None) -> models.ChangeList:
        """Lists the latest changes to messages. Needs the scope `queue` or `read`."""
        return self.ask("GET", "/api/v1/queue/changes", models.ChangeList, query={"limit": limit})

    def change_messages(self, body: models.ChosenBody, *, key: str | None = None) -> models.ChangeShown:
        """Changes named messages, and answers when the change is synced. Needs the scope `queue`, and the role
        operator.
        """
        return self.ask("POST", "/api/v1/queue/changes", models.ChangeShown, body=body, key=key)

    def change(self, tag: str) -> models.ChangeShown:
        """Returns a change with its progress. Needs the scope `queue` or `read`."""
        return self.ask("GET", f"/api/v1/queue/changes/{self.quoted(tag)}", models.ChangeShown)

    def count_messages(self, body: models.CountBody, *, key: str | None = None) -> models.ChangeShown:
        """Begins to count the messages that match a filter, for a change that is not started yet. An empty filter is
        the whole queue. The count continues after the answer: ask for the change until its phase is counted.
        Needs the scope `queue`, and the role operator.
        """
        return self.ask("POST", "/api/v1/queue/counts", models.ChangeShown, body=body, key=key)

    def start_change(self, tag: str, body: models.StartChangeBody, *, key: str | None = None) -> models.ChangeShown:
        """Starts a counted change, if ``matched`` is the number of messages that was counted. It continues after the
        answer. Needs the scope `queue`, and the role operator.
        """
        return self.ask(
            "POST", f"/api/v1/queue/changes/{self.quoted(tag)}/start", models.ChangeShown, body=body, key=key
        )

    def stop_change(self, tag: str, *, key: str | None = None) -> models.ChangeShown:
        """Stops a change between two steps; messages that were changed stay changed. Needs the scope `queue`, and
        the role operator.
        """
        return self.ask("POST", f"/api/v1/queue/changes/{self.quoted(tag)}/stop", models.ChangeShown, key=key)

    def undo_change(self, tag: str, body: models.UndoBody, *, key: str | None = None) -> models.ChangeShown:
        """Undoes a delete: returns the recipients that it deleted. The undo is a change of its own, which continues.
        Needs the scope `queue`, and the role operator.
        """
        return self.ask(
            "POST", f"/api/v1/queue/changes/{self.quoted(tag)}/undo", models.ChangeShown, body=body, key=key
        )

    def report_runs(self, *, limit: int | None = None) -> models.RunList:
        """Lists the latest runs of reports. Needs the scope `read` or `report`."""
        return self.ask("GET", "/api/v1/report-runs", models.RunList, query={"limit": limit})

    def start_report(self, body: models.StartReportBody, *, key: str | None = None) -> models.RunShown:
        """Asks for the report of a day; it is made after the answer. One that waits for that day already is enough.
        Needs the scope `report`, and the role operator.
        """
        return self.ask("POST", "/api/v1/report-runs", models.RunShown, body=body, key=key)

    def report_run(self, number: int) -> models.RunShown:
        """Returns a run with its progress. Needs the scope `read` or `report`."""
        return self.ask("GET", f"/api/v1/report-runs/{self.quoted(number)}", models.RunShown)

    def stop_report(self, number: int, body: models.StopBody, *, key: str | None = None) -> models.RunShown:
        """Stops a run that waits or is running, within some seconds. Needs the scope `report`, and the role
        operator.
        """
        return self.ask("POST", f"/api/v1/report-runs/{self.quoted(number)}/stop", models.RunShown, body=body, key=key)

    def report_settings(self) -> models.ReportSettings:
        """Returns the preferences of the reports and the schedules. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/report-settings", models.ReportSettings)

    def change_report_preferences(
        self, body: models.PreferencesBody, *, key: str | None = None
    ) -> models.ReportSettings:
        """Changes the preferences, as settings of [reports]. Existing reports do not change. Needs the scope
        `settings`, and the role administrator.
        """
        return self.ask("POST", "/api/v1/report-settings", models.ReportSettings, body=body, key=key)

    def change_schedule(
        self, number: int, body: models.ScheduleBody, *, key: str | None = None
    ) -> models.ReportSettings:
        """Changes the time of a nightly task, or disables it. Needs the scope `settings`, and the role
        administrator.
        """
        return self.ask(
            "POST",
            f"/api/v1/report-settings/schedules/{self.quoted(number)}",
            models.ReportSettings,
            body=body,
            key=key,
        )

    def reports(
        self, *, period: Literal["day", "week", "month"] | None = None, count: int | None = None
    ) -> models.ReportList:
        """Lists the last complete periods with the state of their reports, and older reports. Needs the scope
        `read`.
        """
        return self.ask("GET", "/api/v1/reports", models.ReportList, query={"period": period, "count": count})

    def report(self, period: Literal["day", "week", "month"], start: str) -> models.ReportFound:
        """Returns one report: its balance and the names of its tables. Needs the scope `read`."""
        return self.ask("GET", f"/api/v1/reports/{self.quoted(period)}/{self.quoted(start)}", models.ReportFound)

    def report_table(
        self,
        period: Literal["day", "week", "month"],
        start: str,
        table: str,
        *,
        cursor: int | None = None,
        limit: int | None = None,
    ) -> models.TableRows:
        """Lists rows of a table of a report. Needs the scope `read`."""
        return self.ask(
            "GET",
            f"/api/v1/reports/{self.quoted(period)}/{self.quoted(start)}/{self.quoted(table)}",
            models.TableRows,
            query={"cursor": cursor, "limit": limit},
        )

    def search(
        self,
        *,
        recipient: str | None = None,
        sender: str | None = None,
        message_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> models.Found:
        """Finds messages by recipient, sender or Message-ID, also those that have left the queue. Needs the scope
        `read`.
        """
        return self.ask(
            "GET",
            "/api/v1/queue/search",
            models.Found,
            query={
                "recipient": recipient,
                "sender": sender,
                "message_id": message_id,
                "cursor": cursor,
                "limit": limit,
            },
        )

    def ages(self, *, refresh: bool | None = None) -> models.AgesPart:
        """Returns the messages of the queue by destination and age, or how far the count is. Ask again until
        ``done`` is true: the count continues while it is asked for. Needs the scope `read`.
        """
        return self.ask("GET", "/api/v1/queue/ages", models.AgesPart, query={"refresh": refresh})

    def routes(self) -> models.Routes:
        """Returns the routes, in the order in which they count, and the fallback next hops. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/routes", models.Routes)

    def resolve(self, *, address: str) -> models.Resolved:
        """Returns where mail for an address would go. Needs the scope `read`."""
        return self.ask("GET", "/api/v1/routes/resolve", models.Resolved, query={"address": address})

    def positions(self) -> models.Positions:
        """Returns the restart positions: where each runner is, what is on disk and why, and what a start would cost.
        Needs the scope `read`.
        """
        return self.ask("GET", "/api/v1/positions", models.Positions)

    def users(self, *, cursor: int | None = None, limit: int | None = None) -> models.UserList:
        """Lists users with their roles. Needs the scope `users`, and the role administrator."""
        return self.ask("GET", "/api/v1/users", models.UserList, query={"cursor": cursor, "limit": limit})

    def create_user(self, body: models.NewUserBody, *, key: str | None = None) -> models.UserShown:
        """Creates a user. Needs the scope `users`, and the role administrator."""
        return self.ask("POST", "/api/v1/users", models.UserShown, body=body, key=key)

    def user(self, number: int) -> models.UserShown:
        """Returns a user. Needs the scope `users`, and the role administrator."""
        return self.ask("GET", f"/api/v1/users/{self.quoted(number)}", models.UserShown)

    def change_user(self, number: int, body: models.UserBody, *, key: str | None = None) -> models.UserShown:
        """Changes a user's names, role, right to read bodies, or disables the user. Sessions end with other rights.
        Needs the scope `users`, and the role administrator.
        """
        return self.ask("POST", f"/api/v1/users/{self.quoted(number)}", models.UserShown, body=body, key=key)

    def set_password(self, number: int, body: models.PasswordBody, *, key: str | None = None) -> models.Done:
        """Sets another user's password; the user's sessions end. Needs the scope `users`, and the role
        administrator.
        """
        return self.ask("POST", f"/api/v1/users/{self.quoted(number)}/password", models.Done, body=body, key=key)

    def remove_second_factor(self, number: int, body: models.WhyBody, *, key: str | None = None) -> models.Done:
        """Removes another user's two-factor sign-in, when the authenticator and the recovery codes are lost. Needs
        the scope `users`, and the role administrator.
        """
        return self.ask(
            "POST", f"/api/v1/users/{self.quoted(number)}/remove-second-factor", models.Done, body=body, key=key
        )

    def unlink_user(self, number: int, body: models.WhyBody, *, key: str | None = None) -> models.Done:
        """Unlinks another user from single sign-on, and ends the user's sessions; 409 if there is no other way in.
        Needs the scope `users`, and the role administrator.
        """
        return self.ask("POST", f"/api/v1/users/{self.quoted(number)}/unlink", models.Done, body=body, key=key)

    def delete_user(self, number: int, body: models.WhyBody, *, key: str | None = None) -> models.Done:
        """Deletes a user with all tokens; the audit log keeps the name. Needs the scope `users`, and the role
        administrator.
        """
        return self.ask("POST", f"/api/v1/users/{self.quoted(number)}/delete", models.Done, body=body, key=key)

    def roles(self) -> models.RoleList:
        """Lists the roles, and whether their users may read bodies. Needs the scope `users`, and the role
        administrator.
        """
        return self.ask("GET", "/api/v1/roles", models.RoleList)

    def change_role(
        self, name: Literal["viewer", "operator", "administrator"], body: models.RoleBody, *, key: str | None = None
    ) -> models.RoleShown:
        """Lets users of a role read bodies, or not. Needs the scope `users`, and the role administrator."""
        return self.ask("POST", f"/api/v1/roles/{self.quoted(name)}", models.RoleShown, body=body, key=key)

    def tokens(self, *, cursor: int | None = None, limit: int | None = None) -> models.TokenList:
        """Lists the tokens of all users, newest first. Needs the scope `users`, and the role administrator."""
        return self.ask("GET", "/api/v1/tokens", models.TokenList, query={"cursor": cursor, "limit": limit})

    def revoke_token(self, number: int, body: models.WhyBody, *, key: str | None = None) -> models.TokenShown:
        """Revokes a token, at once and permanently. Needs the scope `users`, and the role administrator."""
        return self.ask("POST", f"/api/v1/tokens/{self.quoted(number)}/revoke", models.TokenShown, body=body, key=key)

    def locks(self, *, limit: int | None = None) -> models.LockList:
        """Lists recent wrong passwords, and the accounts that are locked because of them. Needs the scope `users`,
        and the role administrator.
        """
        return self.ask("GET", "/api/v1/locks", models.LockList, query={"limit": limit})

    def unlock(self, number: int, body: models.WhyBody, *, key: str | None = None) -> models.Done:
        """Forgets the wrong passwords of a user from an address, so that the account is not locked for it. Needs the
        scope `users`, and the role administrator.
        """
        return self.ask("POST", f"/api/v1/locks/{self.quoted(number)}/unlock", models.Done, body=body, key=key)

    def webhooks(self) -> models.WebhookList:
        """Lists all webhooks with their state. Needs the scope `read` or `webhooks`."""
        return self.ask("GET", "/api/v1/webhooks", models.WebhookList)

    def make_webhook(self, body: models.NewWebhookBody, *, key: str | None = None) -> models.WebhookMade:
        """Makes a webhook. The answer has the secret that signs its requests, once. Needs the scope `webhooks`, and
        the role administrator.
        """
        return self.ask("POST", "/api/v1/webhooks", models.WebhookMade, body=body, key=key)

    def webhook(self, number: int) -> models.WebhookShown:
        """Returns a webhook with its state, and the result of its last test. Needs the scope `read` or `webhooks`."""
        return self.ask("GET", f"/api/v1/webhooks/{self.quoted(number)}", models.WebhookShown)

    def change_webhook(self, number: int, body: models.WebhookBody, *, key: str | None = None) -> models.WebhookShown:
        """Changes a webhook. It continues where it is. Needs the scope `webhooks`, and the role administrator."""
        return self.ask("POST", f"/api/v1/webhooks/{self.quoted(number)}", models.WebhookShown, body=body, key=key)

    def webhook_failures(self, number: int, *, limit: int | None = None) -> models.FailureList:
        """Lists the last requests of a webhook that failed. Needs the scope `read` or `webhooks`."""
        return self.ask(
            "GET", f"/api/v1/webhooks/{self.quoted(number)}/failures", models.FailureList, query={"limit": limit}
        )

    def make_webhook_secret(
        self, number: int, body: models.WebhookWhyBody, *, key: str | None = None
    ) -> models.WebhookMade:
        """Makes another secret, which the answer has, once. Requests are signed with it from now on. Needs the scope
        `webhooks`, and the role administrator.
        """
        return self.ask(
            "POST", f"/api/v1/webhooks/{self.quoted(number)}/secret", models.WebhookMade, body=body, key=key
        )

    def delete_webhook(
        self, number: int, body: models.WebhookWhyBody, *, key: str | None = None
    ) -> models.WebhookDeleted:
        """Deletes a webhook. Needs the scope `webhooks`, and the role administrator."""
        return self.ask(
            "POST", f"/api/v1/webhooks/{self.quoted(number)}/delete", models.WebhookDeleted, body=body, key=key
        )

    def pause_webhook(self, number: int, body: models.WebhookWhyBody, *, key: str | None = None) -> models.WebhookShown:
        """Stops sending. The webhook keeps its position. Needs the scope `webhooks`, and the role operator."""
        return self.ask(
            "POST", f"/api/v1/webhooks/{self.quoted(number)}/pause", models.WebhookShown, body=body, key=key
        )

    def resume_webhook(
        self, number: int, body: models.WebhookWhyBody, *, key: str | None = None
    ) -> models.WebhookShown:
        """Sends on from where it was, at once. Needs the scope `webhooks`, and the role operator."""
        return self.ask(
            "POST", f"/api/v1/webhooks/{self.quoted(number)}/resume", models.WebhookShown, body=body, key=key
        )

    def move_webhook(self, number: int, body: models.MoveWebhookBody, *, key: str | None = None) -> models.WebhookShown:
        """Sets the position from which a webhook continues. Needs the scope `webhooks`, and the role operator."""
        return self.ask("POST", f"/api/v1/webhooks/{self.quoted(number)}/move", models.WebhookShown, body=body, key=key)

    def test_webhook(self, number: int, body: models.WebhookWhyBody, *, key: str | None = None) -> models.WebhookShown:
        """Sends a test within seconds; the webhook then has its result in ``test_…``. Needs the scope `webhooks`,
        and the role operator.
        """
        return self.ask("POST", f"/api/v1/webhooks/{self.quoted(number)}/test", models.WebhookShown, body=body, key=key)
