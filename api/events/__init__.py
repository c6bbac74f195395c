"""The stream of changes: `/api/v1/events`."""
