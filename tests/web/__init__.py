"""Tests of the status page."""
