"""Runs the whole pipeline on one machine: servers, services, and what is to be done when one of them ends."""
