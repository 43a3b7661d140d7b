#!/usr/bin/env python3
"""Django's command line for the portal: manage.py serve, migrate, createsuperuser, check --deploy, ..."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    try:
        settings.DEBUG  # noqa: B018 - reads them, and makes the portal's key
    except OSError as error:  # a home that nobody can write to: a sentence, and no more
        sys.exit(f"manage.py {' '.join(sys.argv[1:2])}: {error}")
    execute_from_command_line(sys.argv)
