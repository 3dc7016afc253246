"""Message schedules (ADR-51) for every NATS server."""
