"""The pages of the reference do what they say, typed from their first command to their last."""

from tests.site.blocks import REFERENCE
from tests.site.reader import following

test_the_page_does_what_it_says = following(REFERENCE)
