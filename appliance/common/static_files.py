"""The storage of static files: hashed names from the manifest, and plain names for files that the manifest lacks.

Law: a missing manifest never keeps a page from being shown; otherwise the page for an error would itself be an error.
"""

from __future__ import annotations

import logging

from whitenoise.storage import CompressedManifestStaticFilesStorage

__all__ = ["StaticFiles"]

_log = logging.getLogger("waypost.portal")


class StaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Hashed and compressed files, as ``collectstatic`` makes them."""

    _missing_logged = False

    def stored_name(self, name: str) -> str:
        """Returns the name with its hash; the plain name, and one line in the log, if the manifest lacks it."""
        try:
            return str(super().stored_name(name))
        except ValueError:
            if not self._missing_logged:
                self._missing_logged = True
                _log.error("%s is not in the manifest of static files; pages have no styles. Restart the portal.", name)
            return name
