"""The only place that talks to Redis. Nothing outside sees a key or a script."""
