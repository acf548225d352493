"""Tables of lowkiq.django, as they came to be."""
