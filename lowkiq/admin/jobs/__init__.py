"""Jobs as people find them, see them, and act on them."""
