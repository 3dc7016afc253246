"""The how-to pages do what they say, typed from their first command to their last."""

from tests.site.blocks import HOW_TO
from tests.site.reader import following

test_the_page_does_what_it_says = following(HOW_TO)
