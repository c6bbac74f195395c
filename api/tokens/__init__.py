"""API tokens: made, listed and revoked."""
