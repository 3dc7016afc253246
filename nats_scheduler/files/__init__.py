"""Schedules in files under version control: YAML and JSON, read with all their errors and written in one form."""
