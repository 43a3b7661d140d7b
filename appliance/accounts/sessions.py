"""Ends sessions when their user is disabled or gets other rights.

The role is read with each request, so no right depends on this; but a user who left a page open has to sign in again.
Changing a password ends the user's other sessions by Django's own session hash.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.models import Session
from django.db.models.signals import m2m_changed, post_save, pre_save
from django.dispatch import receiver
from django.utils import timezone

__all__ = ["end_sessions"]


def end_sessions(users: set[int]) -> int:
    """Ends all sessions of the users; returns how many ended. Reads all sessions: there are some hundreds, and a role
    changes rarely."""
    if not users:
        return 0
    names = {str(user) for user in users}
    ended = [
        session.pk
        for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator()
        if session.get_decoded().get(SESSION_KEY) in names
    ]
    return Session.objects.filter(pk__in=ended).delete()[0]


@receiver(pre_save, sender=User)
def _remember_superuser(sender: type[User], instance: User, **_: Any) -> None:
    if instance.pk is not None:
        was = User.objects.filter(pk=instance.pk).values_list("is_superuser", flat=True).first()
        setattr(instance, "_was_superuser", was)  # noqa: B010


@receiver(post_save, sender=User)
def _user_saved(sender: type[User], instance: User, created: bool, **_: Any) -> None:
    was = getattr(instance, "_was_superuser", instance.is_superuser)
    if not created and (not instance.is_active or was != instance.is_superuser):
        end_sessions({instance.pk})


@receiver(m2m_changed, sender=User.groups.through)
@receiver(m2m_changed, sender=User.user_permissions.through)
def _rights_changed(instance: Any, action: str, reverse: bool, pk_set: set[int] | None, **_: Any) -> None:
    if not reverse:
        # No set: all were taken away; an empty one: nothing was changed.
        if action.startswith("post_") and (pk_set is None or pk_set):
            end_sessions({instance.pk})
    elif action in ("post_add", "post_remove"):
        end_sessions(set(pk_set or ()))
    elif action == "pre_clear":
        members = instance.user_set if isinstance(instance, Group) else User.objects.filter(user_permissions=instance)
        end_sessions(set(members.values_list("pk", flat=True)))
