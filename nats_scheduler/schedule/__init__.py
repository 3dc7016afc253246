"""The schedule language: instants, RFC 3339, durations, time zones, cron, patterns. Pure."""
