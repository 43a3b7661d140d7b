"""Live pages: the hub that asks the core, and the streams that the pages listen to."""
