"""The auditor watches the API server, the ledger and the queue, and reports violations of invariants."""
