"""The portal's own settings, for a process of its own; only static files are not collected first."""

from __future__ import annotations

from appliance import settings as portal

globals().update({name: getattr(portal, name) for name in dir(portal) if name.isupper()})
STORAGES = portal.STORAGES | {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
