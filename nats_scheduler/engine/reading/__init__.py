"""The meaning of a stream's messages: which are schedules, which are held, and which are only listed."""
