"""The Kubernetes objects that a scheduler reads, and what can be computed from one of them alone."""
