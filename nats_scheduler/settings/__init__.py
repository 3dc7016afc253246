"""The settings of the operator: flags, environment, one JSON file, NATS contexts."""
