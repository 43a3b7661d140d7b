"""Settings: the configuration file, its values and bounds, live-tuned values."""
