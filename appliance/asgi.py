"""What uvicorn serves: Django, and beside it the one listener to the core that all live pages share."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
application = get_asgi_application()
