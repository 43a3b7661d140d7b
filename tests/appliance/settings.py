"""The portal's settings for tests: a home of its own that is gone at the end; passwords are hashed in a hurry."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="wp-", dir="/tmp"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)
(HOME / "waypost.toml").write_text('home = "."\n')
os.environ["WAYPOST_CONFIG"] = str(HOME / "waypost.toml")
os.environ.pop("DATABASE_URL", None)

from appliance import settings as portal  # noqa: E402  # after the environment it reads

globals().update({name: getattr(portal, name) for name in dir(portal) if name.isupper()})
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *portal.PASSWORD_HASHERS]
STORAGES = portal.STORAGES | {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}  # nothing is collected
}
# prometheus-client decides when it is imported where numbers are; the portal's own settings do this if its metrics may be read.
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(portal.METRICS_DIRECTORY)
portal.METRICS_DIRECTORY.mkdir(parents=True, exist_ok=True)
portal.STATIC_ROOT.mkdir(parents=True, exist_ok=True)
