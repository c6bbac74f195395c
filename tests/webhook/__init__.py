"""Tests of the admission webhooks."""
