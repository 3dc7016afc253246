"""The first pages and those for contributors do what they say, typed from their first command to their last."""

from tests.site.blocks import START
from tests.site.reader import following

test_the_page_does_what_it_says = following(START)
