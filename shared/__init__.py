"""What the services share: the model, the cluster state, the framework and its plugins. Imports nothing from services."""
