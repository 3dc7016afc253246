"""The division of a stream's schedules among instances, and what changes hands."""
