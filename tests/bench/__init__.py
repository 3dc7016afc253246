"""The benchmark runs; what it measures is for people to read."""
