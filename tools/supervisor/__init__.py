"""Runs the whole pipeline on one machine: servers and services, restarted when they end."""
