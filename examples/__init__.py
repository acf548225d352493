"""Programs that show Lowkiq at work; `make demo` runs one of them on this repository's own history."""
