"""The status page: a process of its own that asks the micro service, and so can neither delay nor break a fire."""
