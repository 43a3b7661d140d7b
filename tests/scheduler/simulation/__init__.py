"""What the simulator is made of."""
