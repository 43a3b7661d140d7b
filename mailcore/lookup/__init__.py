"""Everything that reads the queue and never writes it."""
