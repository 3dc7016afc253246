"""Which request begins, which waits and which is refused: decided without a server, with a clock of the test."""

import pytest

from nats_scheduler.service.shares import (
    MAX_CLIENTS,
    MAX_DEBT_SECONDS,
    MAX_WAITING_OF_ONE,
    WAIT_LIMIT_SECONDS,
    Buckets,
    Budget,
    RequestPlaces,
    ShareRefused,
    Shares,
    client_of,
)

NUID = b"Tk2tNUyvGnkmTs0tWpBxhq"


def test_a_client_is_the_beginning_of_its_inbox() -> None:
    for reply, client in (
        (b"_INBOX.abc.1.2.3", b"_INBOX.abc"),
        (b"_INBOX." + NUID, b"_INBOX." + NUID[:12]),
        (b"_INBOX_team.abc.1", b"_INBOX_team.abc"),
        (b"_\xff.\xfe.x", b"_\xff.\xfe"),
    ):
        assert client_of(reply, b"") == client


def test_a_client_of_another_account_is_whom_the_server_names() -> None:
    def imported(said: str) -> bytes:
        return client_of(b"_R_.AbCdEf.x", f"NATS/1.0\r\nNats-Request-Info: {said}\r\n\r\n".encode())

    one = imported('{"acc":"A","rtt":12345,"start":"2026-01-01T00:00:00Z"}')
    assert one == imported('{"acc":"A","rtt":999}'), "how long its way is does not count"
    assert one != imported('{"acc":"B","rtt":12345}')
    assert imported('{"acc":"A","id":12,"user":"ada"}') != imported('{"acc":"A","id":13,"user":"ada"}')
    assert imported("not json") == client_of(b"_R_.AbCdEf.y", b"") == b"_R_.AbCdEf"
    forged = client_of(b"_INBOX.abc.1", b'NATS/1.0\r\nNats-Request-Info: {"acc":"B"}\r\n\r\n')
    assert forged == b"_INBOX.abc", "a client of the account can write that header"


def places(most: int = 4, of_one: int = 2, waiting: int = 40, share: float = 1.0, owner: bytes = b"") -> RequestPlaces:
    return RequestPlaces(most, of_one, waiting, Budget(share, share / 2), owner)


def begun(shares: Shares[str], now: float = 0.0) -> list[str]:
    found = list[str]()
    while (one := shares.next(now)) is not None:
        found.append(one)
    return found


def test_clients_take_turns_however_many_requests_one_has() -> None:
    shares, asked = Shares[str](), places()
    for number in range(30):
        assert shares.add(asked, b"a", f"a{number}", 100, 0.0) is None
    assert begun(shares) == ["a0", "a1"], "one client has two of four places"
    for client in ("b", "c"):
        assert shares.add(asked, client.encode(), f"{client}0", 100, 0.0) is None
        assert shares.add(asked, client.encode(), f"{client}1", 100, 0.0) is None
    assert begun(shares) == ["b0", "c0"]
    shares.end(asked, b"a")
    assert begun(shares) == ["a2"], "it has waited longest for its turn"
    shares.end(asked, b"a")
    assert begun(shares) == ["b1"]


def test_one_client_is_refused_what_is_too_much_and_the_others_are_not() -> None:
    shares, asked = Shares[str](), places(waiting=64)
    for number in range(MAX_WAITING_OF_ONE):
        assert shares.add(asked, b"a", f"{number}", 100, 0.0) is None
    assert shares.add(asked, b"a", "more", 100, 0.0) == ShareRefused("more", asked.too_many_of_one)
    assert f"{asked.most_of_one} requests are in work, and {MAX_WAITING_OF_ONE} wait" in asked.too_many_of_one
    assert shares.add(asked, b"b", "its first", 100, 0.0) is None


def test_the_bytes_that_wait_are_limited_for_one_client_and_for_all() -> None:
    shares, asked = Shares[str](), places(waiting=64)
    part = asked.most_bytes // 8
    assert [shares.add(asked, b"a", "x", part, 0.0) for _ in range(2)] == [None, None]
    assert shares.add(asked, b"a", "x", 1, 0.0) == ShareRefused("x", asked.too_long_of_one)
    for number in range(6):
        assert shares.add(asked, b"b%d" % number, "y", part, 0.0) is None
    assert shares.add(asked, b"c", "first of c", part, 0.0) == ShareRefused("x", asked.too_many), "one of two gives way"
    assert shares.add(asked, b"d", "first of d", part, 0.0) == ShareRefused("first of d", asked.too_many)
    assert asked.waiting_bytes == asked.most_bytes


def test_a_client_with_many_that_wait_gives_way_to_one_with_none() -> None:
    shares, asked = Shares[str](), places(waiting=10)
    for number in range(10):
        shares.add(asked, b"a", f"a{number}", 100, 0.0)
    assert shares.add(asked, b"a", "a10", 100, 0.0) == ShareRefused("a10", asked.too_many)
    assert shares.add(asked, b"b", "b0", 100, 0.0) == ShareRefused("a9", asked.too_many)
    assert begun(shares) == ["a0", "b0", "a1"]


def test_who_waits_too_long_is_refused_with_the_limits() -> None:
    shares, asked = Shares[str](), places(most=0)
    shares.add(asked, b"a", "early", 100, 0.0)
    shares.add(asked, b"a", "late", 100, 1.0)
    assert shares.overdue(WAIT_LIMIT_SECONDS - 0.1) == []
    assert shares.overdue(WAIT_LIMIT_SECONDS) == [ShareRefused("early", asked.too_late)]
    assert "100% of a second of process time, 50% for one client" in asked.too_late
    assert shares.clear() == ["late"]
    assert not shares.has_waiting


def test_process_time_is_paid_back_by_who_took_it() -> None:
    shares, asked = Shares[str](), places(share=0.4)
    asked.budget.spend(b"a", 0.3, 0.0)
    shares.add(asked, b"a", "a", 100, 0.0)
    shares.add(asked, b"b", "b", 100, 0.0)
    assert begun(shares) == ["b"]
    assert shares.seconds(0.0) == pytest.approx(0.5), "0.1 s of a fifth of each second"
    assert begun(shares, 0.51) == ["a"]
    asked.budget.spend(b"a", 9.0, 0.51)
    shares.add(asked, b"c", "c", 100, 0.51)
    assert begun(shares, 0.51) == []
    assert shares.seconds(0.51) == pytest.approx(MAX_DEBT_SECONDS / 0.4), "a dear request is paid back in part only"
    assert begun(shares, 0.51 + MAX_DEBT_SECONDS / 0.4 + 0.01) == ["c"]


def test_the_memory_of_clients_is_limited() -> None:
    buckets, asked = Buckets(1e9, 1.0, 1.0), places()
    for number in range(3 * MAX_CLIENTS):
        buckets.use(b"%d" % number, 2.0, 0.0, 2.0)
        while asked.may_refuse(b"%d" % number, 0.0):
            pass
    assert buckets.seconds(b"%d" % (3 * MAX_CLIENTS - 1), 0.0) == 1.0
    assert (len(buckets._each), len(asked._muted) <= MAX_CLIENTS) == (MAX_CLIENTS, True)
