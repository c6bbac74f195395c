"""pytest fixtures of the test control plane; a ``conftest.py`` imports those that its tests use.

One control plane of each variant runs for a whole pytest session. ``cluster`` and ``cluster_stand_in`` give it to one
test and remove afterwards what the test made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_plane import versions
from tests.control_plane.build import BuildError, build
from tests.control_plane.cluster import ControlPlane

BUILD_VARIABLE = "QM_BUILD_CONTROL_PLANE"
"""Set to 1: a missing control plane is built (about ten minutes) instead of skipping its tests."""

GATES = ("GenericWorkload", "TopologyAwareWorkloadScheduling", "WorkloadWithJob")
"""Of Kubernetes 1.37: PodGroups, their topology keys, and `spec.scheduling` of a Job."""
VARIANTS: dict[str, Any] = {
    "real": {"trainer": True},
    "stand-in": {"trainer": "stand-in"},
    "groups": {
        "trainer": "stand-in",
        "stand_in_generation": "v2.4",
        "feature_gates": dict.fromkeys(GATES, True),
        "runtime_config": ["scheduling.k8s.io/v1beta1=true", "scheduling.k8s.io/v1alpha3=true"],
    },
}

_running = pytest.StashKey[dict[str, ControlPlane]]()


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The control plane of this session, with the real Trainer."""
    yield from _session_control_plane(request, tmp_path_factory, "real")


@pytest.fixture(scope="session")
def control_plane_stand_in(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane of this session whose TrainJobs have ``runtimePatches``, run by our stand-in for Trainer."""
    yield from _session_control_plane(request, tmp_path_factory, "stand-in")


@pytest.fixture(scope="session")
def control_plane_groups(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane of this session with Kubernetes' Workloads and PodGroups, and a stand-in for Trainer v2.4."""
    yield from _session_control_plane(request, tmp_path_factory, "groups")


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the real Trainer, empty before and after each test."""
    yield from _empty(control_plane)


@pytest.fixture
def cluster_stand_in(control_plane_stand_in: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the stand-in for Trainer, empty before and after each test."""
    yield from _empty(control_plane_stand_in)


@pytest.fixture
def cluster_groups(control_plane_groups: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with PodGroups, empty before and after each test."""
    yield from _empty(control_plane_groups)


@pytest.fixture(params=["real", "stand-in"])
def cluster_of_each_trainer(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Both variants, one after the other, each empty before and after the test."""
    name = {"real": "control_plane", "stand-in": "control_plane_stand_in"}[request.param]
    yield from _empty(request.getfixturevalue(name))


def require_binaries() -> None:
    """Has the binaries built in CI or when asked to, else skips the test and says how to get them.

    In CI a build that fails is a failure, not a skip.
    """
    missing = versions.missing_parts()
    if not missing:
        return
    if os.environ.get("CI") or os.environ.get(BUILD_VARIABLE) == "1":
        try:
            build()
        except BuildError as error:
            pytest.fail(f"the test control plane can't be built: {error}", pytrace=False)
    else:
        pytest.skip(
            f"the test control plane is not built (missing: {', '.join(missing)}); "
            f"build it with 'python -m tests.control_plane.build' or set {BUILD_VARIABLE}=1"
        )


def _session_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, variant: str
) -> Iterator[ControlPlane]:
    """Starts the variant, unless another conftest's fixture of the same name did, and stops it with the session."""
    running = request.config.stash.setdefault(_running, {})
    if variant in running:
        yield running[variant]
        return
    require_binaries()
    folder = tmp_path_factory.mktemp(f"control-plane-{variant}")
    with ControlPlane.start(folder, **VARIANTS[variant]) as started:
        _report(request, f"control plane ({variant}) ready in {started.start_seconds:.1f} s, logs in {folder}")
        running[variant] = started
        try:
            yield started
        finally:
            del running[variant]


def _empty(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.check()
    yield control_plane
    control_plane.reset()


def _report(request: pytest.FixtureRequest, message: str) -> None:
    """Shows a line even though pytest captures output."""
    manager = request.config.pluginmanager.getplugin("capturemanager")
    if manager is None:
        print(message)
        return
    with manager.global_and_fixture_disabled():
        print(f"\n{message}", flush=True)
