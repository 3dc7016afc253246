"""The scenarios: what is done on each side, one module for each family."""
