"""A Kubernetes API server in one process, in memory: the default of `flotilla up`, and the cluster of the tests."""
