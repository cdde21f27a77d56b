"""Calls to the API server: credentials, a client, lists and watches, Leases, Events and conditions."""
