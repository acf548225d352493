"""Looks at a node, and at Redis, that others need: beats, dumps, and the checks that come with a beat."""
