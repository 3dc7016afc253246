"""What the operator says: flags, environment, one JSON file, NATS contexts."""
