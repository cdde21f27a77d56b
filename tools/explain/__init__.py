"""Explanations: why a pod is where it is, why not elsewhere, why it is pending, and what would help."""
