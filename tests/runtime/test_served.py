"""Only streams that were stepped are looked at again, and none that needs a look is missed."""

from typing import Any

from nats_scheduler.engine.fitness import Fitness
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, StreamChanged
from nats_scheduler.engine.ownership import Denied
from nats_scheduler.jetstream.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.judgement import Judgement
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.served import ServedStreams
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.settings.sidecar import SidecarSettings
from nats_scheduler.testing.clock import ManualClock
from tests.runtime.test_driver import SilentStream

ORDERS, BILLS = "emulated.ORDERS", "emulated.BILLS"


def service(name: str) -> StreamService:
    """Return the service of a stream, in contact with it, of which nothing was read yet."""
    info = {"config": {"name": name, "subjects": [f"{name}.>"]}, "created": "2020-01-01T00:00:00Z"}
    server = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)
    one = StreamService(
        StreamState.from_info(info), Mode.EMULATED, server, SidecarSettings(), ManualClock(), lambda *_: None
    )
    one.driver.attach(SilentStream())
    return one


def read_all(one: StreamService) -> None:
    """Let a service read its stream to the end."""
    one.driver.receive(CaughtUp())
    one.driver.step()


async def test_a_look_finds_what_was_stepped_since_the_one_before_and_nothing_else() -> None:
    services = {name: service(name) for name in ("ORDERS", "BILLS")}
    served = ServedStreams(services)
    assert served.take_stepped() == [ORDERS, BILLS], "at first all of them"
    assert served.take_stepped() == []
    services["BILLS"].driver.step()
    assert served.take_stepped() == [BILLS]
    assert served.take_stepped() == []


async def test_who_asks_what_is_live_takes_no_step_from_who_judges() -> None:
    services = {"ORDERS": service("ORDERS")}
    served = ServedStreams(services)
    served.take_stepped()
    read_all(services["ORDERS"])
    assert list(served.live()) == [ORDERS]
    assert served.take_stepped() == [ORDERS]


async def test_a_stream_is_live_from_when_it_was_read_until_contact_is_lost() -> None:
    services = {name: service(name) for name in ("ORDERS", "BILLS")}
    served = ServedStreams(services)
    assert not served.live()
    read_all(services["ORDERS"])
    assert list(served.live()) == [ORDERS]
    services["ORDERS"].driver.receive(ContactLost("contact was lost"))
    services["ORDERS"].driver.step()
    assert not served.live()


async def test_a_stream_with_a_new_engine_is_not_live_and_is_looked_at() -> None:
    services = {"ORDERS": service("ORDERS")}
    served = ServedStreams(services)
    read_all(services["ORDERS"])
    assert list(served.live()) == [ORDERS]
    served.take_stepped()
    services["ORDERS"] = service("ORDERS")
    assert not served.live()
    assert served.take_stepped() == [ORDERS]


async def test_a_stream_that_is_served_no_more_is_not_live() -> None:
    services = {"ORDERS": service("ORDERS")}
    served = ServedStreams(services)
    read_all(services["ORDERS"])
    assert list(served.live()) == [ORDERS]
    services.clear()
    assert not served.live()


async def test_who_looks_after_a_reconnect_finds_all_streams_and_their_steps() -> None:
    services = {"ORDERS": service("ORDERS")}
    ServedStreams(services).take_stepped()
    read_all(services["ORDERS"])
    served = ServedStreams(services)
    assert list(served.live()) == [ORDERS]
    served.take_stepped()
    services["ORDERS"].driver.step()
    assert served.take_stepped() == [ORDERS]


async def test_a_step_that_fails_is_not_missed(monkeypatch: Any) -> None:
    services = {"ORDERS": service("ORDERS")}
    served = ServedStreams(services)
    served.take_stepped()

    def fail(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(services["ORDERS"].driver.engine, "_take", fail)
    services["ORDERS"].driver.receive(StreamChanged())
    services["ORDERS"].driver.step()
    assert services["ORDERS"].driver.failed.done()
    assert served.take_stepped() == [ORDERS]


def judgement(fitness: Fitness, clock: ManualClock) -> Judgement:
    """Return what judges by `fitness` and asks nobody."""
    nobody: Any = None
    return Judgement(fitness, lambda *_: [], nobody, clock, Reporter(Metrics()))


async def test_what_is_denied_in_any_step_is_judged_at_the_next_look() -> None:
    services, fitness, clock = {name: service(name) for name in ("ORDERS", "BILLS")}, Fitness(), ManualClock()
    served, judging = ServedStreams(services), judgement(fitness, clock)
    judging.look(served.by_key(), served.take_stepped())
    assert not fitness.cannot
    services["BILLS"].driver.engine.ownership.denied = Denied(clock.now(), 3, "no permission")
    services["BILLS"].driver.step()
    judging.look(served.by_key(), served.take_stepped())
    assert fitness.cannot == {BILLS: "no permission"}


async def test_a_neglected_stream_is_looked_at_until_it_is_not_neglected_any_more() -> None:
    services, clock = {"ORDERS": service("ORDERS")}, ManualClock()
    served, judging = ServedStreams(services), judgement(Fitness(), clock)
    neglected = services["ORDERS"].driver.engine.ownership.neglected
    neglected[3] = clock.now()
    services["ORDERS"].driver.step()
    looks = [len(judging.look(served.by_key(), served.take_stepped())) for _ in range(3)]
    assert looks == [1, 1, 1], "also where nothing steps the stream in between"
    neglected.clear()
    assert judging.look(served.by_key(), served.take_stepped()) == []
