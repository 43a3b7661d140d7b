"""The doctor: looks at an appliance and its host the way a support engineer would, and changes nothing (docs/doctor.md)."""
