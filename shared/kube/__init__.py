"""Talking to the API server. Plain HTTP with msgspec bodies: generated object models cost milliseconds a call."""
