"""The queue manager: one process that reads the lanes, schedules deliveries and writes the journal."""
