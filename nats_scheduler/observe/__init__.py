"""Log events, metrics, advisories."""
