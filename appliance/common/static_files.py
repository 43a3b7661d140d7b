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
        """Returns the name with its hash; the plain name if the manifest lacks it. Logs once that there is no manifest."""
        try:
            return str(super().stored_name(name))
        except ValueError:
            # With a manifest, a single file is missing that a package names and does not have: no page needs it.
            if not self.hashed_files and not self._missing_logged:
                self._missing_logged = True
                _log.error("The manifest of static files is missing, so pages have no styles. Restart the portal.")
            return name
