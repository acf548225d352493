"""Authentication and request checks, before any page or operation."""
