"""Servers in containers: what Ansible makes of a fresh Debian, and what becomes of mail while it is upgraded."""
