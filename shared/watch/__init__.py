"""What every consumer of the watcher's stream has to do alike, so that none misses anything."""
