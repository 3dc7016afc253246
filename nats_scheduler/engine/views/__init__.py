"""What can be asked of an engine without changing it: pages, figures, the next minutes, a graduation."""
