"""Admission webhooks: suspend on create, validation, and the certificates they serve with."""
