"""Processes that the faults hit: Redis and its proxy, supervisors with their jobs, producers."""
