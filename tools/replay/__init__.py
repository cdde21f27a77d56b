"""Replays of recordings: the same decisions again, or those of another configuration."""
