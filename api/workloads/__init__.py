"""Workloads: lists, one workload, why it waits."""
