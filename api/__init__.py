"""REST API and dashboard (FastAPI); installed as `queue_manager_api`."""
