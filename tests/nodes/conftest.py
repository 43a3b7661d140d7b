"""Clusters of PostgreSQL for the tests of nodes."""

from tests.nodes.patroni_site import site, whole_site
from tests.nodes.settings_home import made
from tests.replication.conftest import cluster, own_cluster, shared_cluster, template

__all__ = ["cluster", "made", "own_cluster", "shared_cluster", "site", "template", "whole_site"]
