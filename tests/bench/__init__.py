"""Measure the sidecar against the native scheduler: `python -m tests.bench`; its tests show that it runs."""
