"""Tests of `nats_scheduler.testing`, which users use in their own tests."""
