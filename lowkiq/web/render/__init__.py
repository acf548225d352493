"""How numbers, times, payloads and charts look on a page."""
