"""Everything that people read and click."""
