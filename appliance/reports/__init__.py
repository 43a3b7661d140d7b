"""Reports and schedules."""
