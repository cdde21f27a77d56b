"""What kube-scheduler v1.36 checks in a configuration before it builds anything from it."""
