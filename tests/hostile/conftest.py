"""The served stream of the end-to-end tests, for a stranger to pour into.

One rule: nothing is defined here; what both folders use is defined there.
"""

from tests.e2e.conftest import account, served

__all__ = ["account", "served"]
