"""What all rooms share: the door to the core, the frame of the pages, how things are shown."""
