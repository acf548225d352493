"""Every pair of capabilities, used together in histories that a seed replays: what holds for one must hold for both."""
