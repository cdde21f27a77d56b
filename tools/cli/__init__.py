"""The flotilla command."""
