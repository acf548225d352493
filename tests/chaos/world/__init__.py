"""What runs while faults come: Redis and its proxy, supervisors with their jobs, producers."""
