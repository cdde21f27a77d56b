"""Checks whether Flotilla can run here, or why the one that runs does not: each finding with its fix."""
