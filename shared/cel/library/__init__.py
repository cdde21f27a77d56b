"""The functions that expressions may call, by subject."""
