"""Following the watcher's stream, in the same way for every consumer, so that none misses a change."""
