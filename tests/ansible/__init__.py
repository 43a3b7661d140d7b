"""The Ansible collection, without a server: lint, syntax, what the templates make, what a wrong variable is told."""
