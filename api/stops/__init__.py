"""Stops: queues, local queues, cohorts and flavors that people stop by hand."""
