"""The schedules that are held: rows of a table, objects while something is in progress, their stages and their ends."""
