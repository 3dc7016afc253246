"""The doctor on real servers: each finding where it is reported, and where it is not."""
