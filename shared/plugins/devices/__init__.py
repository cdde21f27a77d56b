"""Dynamic resource allocation: pods' claims of devices."""

SUPPORTED = False
"""Whether the whole pipeline can give pods devices."""
