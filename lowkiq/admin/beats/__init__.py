"""Heartbeats: what each node tells of itself, and whom others ask to stand in."""
