"""PostgreSQL: tables and queries, ledger, leader lease, outbox, configuration revisions, embedded server."""
