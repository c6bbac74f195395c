"""Kueue's three load tests, played with suspended Jobs at a real API server (issue 7)."""
