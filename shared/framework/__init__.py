"""Extension points over columns of nodes, and the runtime that runs the plugins of a profile."""
