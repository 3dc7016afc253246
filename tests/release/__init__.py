"""The distributions that users install, as they are built, and as they are installed."""
