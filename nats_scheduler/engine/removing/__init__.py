"""The removals from the stream: schedules that are done, older versions, and what has expired."""
