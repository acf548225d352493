"""Who may see and who may act: checked before any page or operation."""
