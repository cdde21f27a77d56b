"""The Kubernetes objects that a scheduler reads, and what the scheduler computes from one of them alone."""
