"""Who owns which stream, as the instances write it into the registry's bucket.

The rule: instances are named in the order of their start, by what their heartbeats say; their logs name none of them.
Cost: a request for each record, so it is asked seldom, and never while something is measured.
"""

from tests.harness.account import Account
from tests.harness.fleet import values


async def instances(account: Account) -> list[str]:
    """Return the names of the instances, the one that began first at the front."""
    found = await values(account, "instance")
    return sorted(found, key=lambda name: str(found[name].get("since")))


async def owners(account: Account) -> dict[str, str]:
    """Return the owner of each stream that has one."""
    found = await values(account, "owner")
    # The key is `<mode>.<stream>`.
    return {key.partition(".")[2]: str(value["owner"]) for key, value in found.items() if value.get("owner")}
