"""Kubernetes transport (list, watch, patch, discovery, auth) and the simulated cluster: two sides of one port."""
