"""What goes on now: the overview, and the stream all live pages listen to."""
