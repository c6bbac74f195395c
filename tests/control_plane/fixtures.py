"""pytest fixtures of the test control plane; a ``conftest.py`` imports those that its tests use.

One control plane of each variant runs for a whole pytest session. ``cluster`` and ``cluster_stand_in`` give it to one
test and remove afterwards what the test made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.control_plane import versions
from tests.control_plane.build import BuildError, build
from tests.control_plane.cluster import ControlPlane

BUILD_VARIABLE = "QM_BUILD_CONTROL_PLANE"
"""Set to 1: a missing control plane is built (about ten minutes) instead of skipping its tests."""

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


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the real Trainer, empty before and after each test."""
    yield from _empty(control_plane)


@pytest.fixture
def cluster_stand_in(control_plane_stand_in: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane with the stand-in for Trainer, empty before and after each test."""
    yield from _empty(control_plane_stand_in)


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
    with ControlPlane.start(folder, trainer=True if variant == "real" else "stand-in") as started:
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
