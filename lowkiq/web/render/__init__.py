"""Numbers, times, payloads, charts and templates for pages."""
