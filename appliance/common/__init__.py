"""Code that all rooms use: the door to the core, the frame of the pages, the format of values."""
