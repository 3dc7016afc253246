"""Recorded histories, and checkers named after the promises."""
