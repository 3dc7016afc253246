"""A denial names its subject, however unusual it is; any other error is not a denial.

It tests `jetstream/own_permissions.py` too.
"""

import uuid

from nats_scheduler.jetstream.denials import Denial, read_denial
from nats_scheduler.jetstream.own_permissions import USER_INFO, OwnPermissions
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.servers import V2_15


def test_a_denial_names_what_is_denied_whatever_stands_behind_it() -> None:
    for written, subject in (
        (b"orders.out", "orders.out"),
        ("größe.ф".encode(), "größe.ф"),
        (rb"a'b.\"c\".\\", 'a\'b."c".\\'),
        (rb"not.utf-8.\xff\xc3", "not.utf-8.\udcff\udcc3"),
        (rb"blank.\u00a0.\U000e0001.\x01.\a", "blank.\u00a0.\U000e0001.\x01.\a"),
    ):
        for said, publishes in ((b"Publish", True), (b"Subscription", False)):
            line = b"-ERR 'Permissions Violation for %b to \"%b\"'" % (said, written)
            assert read_denial(line) == Denial(publishes, subject)
    for more in (b' using queue "q"', b' (sid "7")', b", too many tokens"):
        line = b"-ERR 'Permissions Violation for Subscription to \"a.*\"%b'" % more
        assert read_denial(line) == Denial(False, "a.*")


def test_what_cannot_be_read_is_none() -> None:
    violation = b"-ERR 'Permissions Violation for Publish"
    unended = [b'%b to "never ends' % violation, b'%b to "\\' % violation]
    for line in (b"-ERR 'Authorization Violation'", b'%b with Reply of "x"\'' % violation, *unended, b"-ERR"):
        assert read_denial(line) is None, line


def test_a_permission_is_the_same_for_each_name_of_our_own_making() -> None:
    for kind in ("CREATE", "MSG.NEXT", "DELETE", "INFO"):
        tried = [f"$JS.API.CONSUMER.{kind}.S.nats-scheduler-{uuid.uuid4().hex[:16]}" for _ in range(3)]
        assert {Denial(True, subject).permission for subject in tried} == {Denial(True, f"$JS.API.CONSUMER.{kind}.S.*")}
    inbox = f"_INBOX.nats-scheduler-sidecar-{'0123456789abcdef' * 2}.r.*"
    assert Denial(False, inbox).permission == Denial(False, "_INBOX.*.r.*")
    for other in ("orders.nats-scheduler-x", f"a.b-nats-scheduler-{'0' * 16}", f"nats-scheduler-{'0' * 17}"):
        assert Denial(False, other).permission == Denial(False, other)


USERS = """accounts { A { jetstream: enabled, users: [
  { user: some, password: some, permissions: { publish: { allow: ["$JS.API.>"] } } }
] } }
"""


async def test_a_user_who_may_not_ask_is_asked_for_once(start_server: StartServer) -> None:
    server = await start_server(V2_15, config=USERS)
    async with account_on(server.url.replace("nats://", "nats://some:some@")) as account:
        for _ in range(3):
            assert await account.connection.one(OwnPermissions).listed() is None
        await account.api.info()
    assert server.log.read_text("utf-8").count(USER_INFO) == 1
