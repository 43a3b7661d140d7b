"""``waypost setup``: makes an installed package ready for its first mail. Run again, it changes only what is missing."""
