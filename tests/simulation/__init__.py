"""The whole pipeline in one process on virtual time: the services' own shells and cores, and bad luck by seed."""
