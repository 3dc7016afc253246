"""The pages of the reference do what they say, typed from their first command to their last."""

from pathlib import Path

import pytest

from tests.house.sources import place
from tests.site.pages import REFERENCE, pages_of
from tests.site.reader import follow


@pytest.mark.server
@pytest.mark.parametrize("page", pages_of(REFERENCE), ids=place)
async def test_the_page_does_what_it_says(page: Path, tmp_path: Path, programs: Path) -> None:
    await follow(page, tmp_path, programs)
