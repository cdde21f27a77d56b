"""The watcher: lists and watches the cluster at the API server and publishes all changes as one ordered stream."""
