"""The status page: a process of its own that only sends requests, so it can neither delay nor break a fire."""
