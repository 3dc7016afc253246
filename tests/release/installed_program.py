"""The requests to an installed package, by the Python of its own environment.

Its rule: it is run as a file, with `-I`, so that nothing of the checkout is on the path of the interpreter.
"""

import asyncio
import importlib
import json
import pkgutil
import sys
from datetime import timedelta

import nats

import nats_scheduler
from nats_scheduler.client import Schedules, after, cron, every
from nats_scheduler.schedule.patterns import parse_pattern


def imported() -> dict[str, str]:
    """Import every module of the package, and return their files."""
    names = [found.name for found in pkgutil.walk_packages(nats_scheduler.__path__, "nats_scheduler.")]
    return {name: str(importlib.import_module(name).__file__) for name in ["nats_scheduler", *names]}


async def client(url: str, stream: str) -> list[str]:
    """Store schedules, end one, and return the subjects of the others; `<stream>.s.once` fires in a second."""
    nc = await nats.connect(url)
    schedules = await Schedules.on(nc, stream)
    await schedules.upsert(f"{stream}.s.cron", cron("0 30 9 * * *"), b"1", target=f"{stream}.out")
    await schedules.upsert(f"{stream}.s.every", every(timedelta(hours=1)), b"2", target=f"{stream}.out")
    await schedules.cancel(f"{stream}.s.cron")
    listed = [one.subject async for one in schedules.list()]
    twice = [("A", "1"), ("A", "2")]
    await schedules.create(f"{stream}.s.once", after(timedelta(seconds=1)), b"3", target=f"{stream}.due", headers=twice)
    await nc.close()
    return listed


async def export(url: str, stream: str) -> str:
    """Return the schedules of a stream as a file, or why there is none."""
    nc = await nats.connect(url)
    try:
        return (await (await Schedules.on(nc, stream)).export()).text
    except ImportError as error:
        return str(error)
    finally:
        await nc.close()


def main() -> None:
    """Do what the arguments say, and print the result as JSON."""
    act, *arguments = sys.argv[1:]
    if act == "import":
        result: object = imported()
    elif act == "pattern":
        result = str(parse_pattern(arguments[0]))
    else:
        result = asyncio.run({"client": client, "export": export}[act](*arguments))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
