"""Schedules from Python programs, over a nats-py connection that they have."""
