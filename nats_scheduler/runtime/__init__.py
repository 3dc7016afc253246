"""The asyncio shell: clock, driver, start, drain, stop."""
