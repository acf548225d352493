"""The JSON API and metrics, for programs."""
