"""The asyncio shell against real servers and real processes."""
