"""The tests, laid out as the package is; what they stand on is in `harness`."""
