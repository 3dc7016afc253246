"""Servers side by side: what a native one does, and what an older one does with the sidecar beside it."""
