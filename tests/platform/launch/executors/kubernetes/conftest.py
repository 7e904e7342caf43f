"""Tests of Kubernetes call their harness `cluster`."""

import pytest
from kubernetes_harness import KubernetesHarness


@pytest.fixture
def cluster(kubernetes_harness: KubernetesHarness) -> KubernetesHarness:
    return kubernetes_harness
