"""The simulator: the scheduler over modelled next hops, backlogs, and what came out."""
