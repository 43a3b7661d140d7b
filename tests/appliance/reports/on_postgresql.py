"""The portal's settings for tests on a PostgreSQL server: WAYPOST_TESTS_POSTGRESQL names it."""

from __future__ import annotations

import os

import dj_database_url

from tests.appliance import settings as tests

globals().update({name: getattr(tests, name) for name in dir(tests) if name.isupper()})
DATABASES = {"default": dj_database_url.parse(os.environ["WAYPOST_TESTS_POSTGRESQL"])}
