"""Tests of the `jetstream` package that need no server."""
