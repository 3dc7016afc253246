"""Measure the sidecar against the native scheduler: `python -m bench`."""
