"""What the supervisor decides: who is restarted, replaced, killed or told to drain, and when everything ends."""
