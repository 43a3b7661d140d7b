"""The portal: a Django site that shows and tunes the core through the control client."""
