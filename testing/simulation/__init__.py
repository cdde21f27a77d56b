"""The whole pipeline on virtual time: real shells and cores, a simulated API server, network and store, and mishaps."""
