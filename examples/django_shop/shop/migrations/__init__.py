"""Tables of the shop, as they came to be."""
