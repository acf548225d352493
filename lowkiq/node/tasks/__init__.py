"""How jobs of async workers run: as tasks on the node's event loop, which a thread of its own feeds."""
