"""What the services share: the model, the cluster state, the framework and its plugins. Never imports a service."""
