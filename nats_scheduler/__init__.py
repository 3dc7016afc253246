"""Message schedules (ADR-51) beside any NATS server."""
