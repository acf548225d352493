"""What a node has counted and seen, until a beat tells Redis."""
