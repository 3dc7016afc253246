"""The how-to pages with the most commands do what they say, in a file of their own, to run beside the others."""

from tests.site.blocks import LONG
from tests.site.reader import following

test_the_page_does_what_it_says = following(LONG)
