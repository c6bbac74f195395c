"""What a change of the configuration does to the live state, worked out in a process of its own."""
