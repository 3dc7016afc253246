"""How the schedules of a stream are divided among instances, and what changes hands."""
