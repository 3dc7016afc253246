"""What is held: the schedules, near and far from their next fire, their stages and their ends."""
