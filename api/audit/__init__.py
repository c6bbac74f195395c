"""The audit log: searched and exported."""
