"""The server's configuration in `deploy/server` is the list of `docs/operating/security.md`, and a server takes it."""

import re
from pathlib import Path

from tests.conftest import StartServer
from tests.deploy.files import DEPLOY
from tests.harness.account import account_on
from tests.harness.permissions import listed
from tests.harness.servers import ALL_VERSIONS

CONFIG = DEPLOY / "server" / "permissions.conf"


def granted(text: str, act: str) -> list[str]:
    """Return the subjects that the file allows."""
    found = re.search(rf"{act}: {{ allow: \[\n(.*?)\n *\] }}", text, re.S)
    assert found is not None, act
    return re.findall(r'^ *"([^"]+)"', found[1], re.M)


def test_it_grants_what_the_document_lists() -> None:
    text = CONFIG.read_text("utf-8")
    for act in ("publish", "subscribe"):
        assert granted(text, act) == [each.subject for each in listed() if each.act == act]


async def test_every_server_takes_it(start_server: StartServer, tmp_path: Path) -> None:
    text = CONFIG.read_text("utf-8").replace("$NATS_SCHEDULER_PASSWORD", "p1").replace("$OWNER_PASSWORD", "p2")
    for version in ALL_VERSIONS:
        server = await start_server(version, config=text)
        url = server.url.replace("nats://", "nats://scheduler:p1@")
        async with account_on(url, inbox_prefix="_INBOX") as account:
            assert await account.api.info()
