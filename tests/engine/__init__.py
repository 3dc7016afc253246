"""The engine, tested without I/O and without waiting."""
