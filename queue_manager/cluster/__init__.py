"""Kubernetes transport (list, watch, patch, discovery, auth) and the simulated cluster: two implementations of one port."""
