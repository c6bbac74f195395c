"""Configuration: export, apply, single objects, revisions."""
