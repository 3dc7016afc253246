"""What most tests of this folder begin with."""

import pytest

from tests.control.world import World


@pytest.fixture
def world() -> World:
    """A stream with schedules in memory that a sidecar fires."""
    return World()
