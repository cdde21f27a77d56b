"""Grafana's dashboards, made from one description: `make dashboards` writes them."""
