"""The Debian packages and the OCI image, which ``./make-release`` builds."""
