"""Loops of the leader: intake, admission cycle, executors, drain, nodes, timed jobs."""
