"""How jobs run with isolation="process": helper processes perform their batches, and a fork server makes these."""
