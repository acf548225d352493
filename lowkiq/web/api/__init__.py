"""The JSON API, live events and metrics, for programs."""
