"""Alerts: what is wrong, since when, and what to do."""
