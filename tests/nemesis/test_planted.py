"""The rounds see: what is falsified in the history of a real round, and what a sidecar does wrong, is found by its name."""
