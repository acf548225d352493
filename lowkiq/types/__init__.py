"""Types of payloads and ids, as annotations give them: what they are, and the way to bytes and back."""
