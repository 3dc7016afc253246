"""What the messages of a stream mean: which are schedules, which are held, and which are only listed."""
