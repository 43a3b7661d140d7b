"""What the simulator is made of: next hops as models, backlogs, what is gathered on the way, and what came out."""
