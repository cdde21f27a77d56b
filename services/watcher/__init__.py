"""Lists and watches the cluster at the API server, and tells everybody on the bus, in one ordered stream."""
