"""The supervisor's decisions: which process is restarted, replaced, killed or drained, and when everything ends."""
