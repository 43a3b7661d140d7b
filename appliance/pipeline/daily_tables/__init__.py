"""The tables of a day: one report a file, each a function from events to rows."""
