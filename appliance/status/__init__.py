"""Pages of the state: restart positions and routes."""
