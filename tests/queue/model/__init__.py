"""One shard in plain Python, everybody who touches it, and what must hold after each of their steps."""
