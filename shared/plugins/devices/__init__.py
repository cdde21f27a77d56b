"""Dynamic resource allocation: pods' claims of devices."""
