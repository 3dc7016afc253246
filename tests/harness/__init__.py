"""The foundation of the tests: real servers, clusters, processes, the nats CLI, and waiting for conditions."""
