"""Auditor: watches the API server, the ledger and the queue, and says where they break a promise of the scheduler."""
