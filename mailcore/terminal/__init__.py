"""What every command shares: its frame, its output, its times."""
