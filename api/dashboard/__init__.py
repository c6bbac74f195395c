"""Web page for people: queue tree, workloads, explanations."""
