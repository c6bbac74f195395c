"""The pictures of docs/topology.md, drawn from what the whole product does on a simulated cluster."""
