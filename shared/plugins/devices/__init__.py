"""Dynamic resource allocation: pods' claims of devices."""

SUPPORTED = True
"""Whether the whole pipeline can give pods devices."""
