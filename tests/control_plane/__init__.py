"""A real Kubernetes control plane for tests: how it is built, started and filled with simulated nodes.

``python -m tests.control_plane.build`` builds the binaries once into a cache outside the checkout,
:class:`tests.control_plane.cluster.ControlPlane` starts them, and ``tests.control_plane.fixtures`` gives them to
pytest.
"""
