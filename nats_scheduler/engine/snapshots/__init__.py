"""The snapshots of an engine: what it gives into one of itself, and how another engine begins with it."""
