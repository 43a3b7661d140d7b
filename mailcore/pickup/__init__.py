"""The pickup: takes messages that local programs left in the maildrop, each exactly once."""
