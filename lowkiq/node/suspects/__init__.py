"""How jobs run that may have killed a node: one at a time, with nothing beside it."""
