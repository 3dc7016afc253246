"""What the tests stand on: real servers, clusters, processes, the nats CLI, and waiting for conditions."""
