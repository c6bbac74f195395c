"""The queue tree and who uses what of it."""
