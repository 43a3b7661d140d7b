"""The mail log in the browser: as it is written, filtered, and backwards."""
