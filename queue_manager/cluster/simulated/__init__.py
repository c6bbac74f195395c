"""A Kubernetes cluster in memory behind the same port as the real one, for demos, tests and simulation."""

from queue_manager.cluster.simulated.clock import VirtualClock
from queue_manager.cluster.simulated.cluster import SimulatedCluster
from queue_manager.cluster.simulated.faults import Fault, Faults, Planned, PlannedFaults, SeededFaults

__all__ = ["Fault", "Faults", "Planned", "PlannedFaults", "SeededFaults", "SimulatedCluster", "VirtualClock"]
