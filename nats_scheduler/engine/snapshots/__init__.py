"""What an engine gives into a snapshot of itself, and how another one begins with it."""
