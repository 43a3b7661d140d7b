"""Clusters for the tests of the store: one for a whole file, and one for a test that destroys it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replication.cluster import Cluster, Template, made_template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    with made_template() as template:
        yield template


@pytest.fixture(scope="module")
def shared_cluster(template: Template) -> Iterator[Cluster]:
    with template.copy("shared") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """A running cluster with empty tables, of all tests of a file."""
    shared_cluster.empty()
    yield shared_cluster
    shared_cluster.standby.resume_receiver()


@pytest.fixture
def own_cluster(template: Template) -> Iterator[Cluster]:
    """A running cluster of one test, which may destroy it."""
    with template.copy("own") as cluster:
        yield cluster
