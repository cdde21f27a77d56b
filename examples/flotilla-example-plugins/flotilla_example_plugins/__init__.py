"""Three plugins for Flotilla: a filter, a score and a permit."""
