"""Tests of the micro service."""
