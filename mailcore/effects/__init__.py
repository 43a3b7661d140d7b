"""Tells what a change of the settings would do: to mail in the queue, to clients, and to next hops. A process of its own."""
