"""A manual clock and an in-memory JetStream, shipped so that users can test their own schedules."""
