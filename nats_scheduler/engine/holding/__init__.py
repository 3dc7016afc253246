"""The schedules that are held: near and far from their next fire, their stages and their ends."""
