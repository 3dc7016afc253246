"""Messages of strangers: none may stop the sidecar, end its connection, or cost more than some milliseconds.

`NATS_SCHEDULER_FUZZ=N` multiplies the examples of every test here, `NATS_SCHEDULER_SEED` repeats a seeded run.
"""
