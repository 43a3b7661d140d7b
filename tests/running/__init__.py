"""The whole appliance as real processes, and next hops, for tests."""
