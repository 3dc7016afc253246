"""Tests of what talks to JetStream, as far as it needs no server."""
