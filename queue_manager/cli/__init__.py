"""Command line: `queue-manager`, alias `qm`."""
