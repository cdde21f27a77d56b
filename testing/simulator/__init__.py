"""A Kubernetes API server in one process: the embedded default, and the tests' cluster."""
