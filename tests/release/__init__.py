"""What users install: the distributions, as they are built, and as they are installed."""
