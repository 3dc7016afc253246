"""Request a page from a listener, as Prometheus and health checks do, and read what a sidecar shows there.

The rule: a request does not block the event loop of the test.
"""

import asyncio
import http.client
import re
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually

ANSWER_SECONDS = 20.0
"""Longest wait for a page, on a busy machine."""

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of a sample of ours, None if there is no such series."""
        return self.samples.get(f"nats_scheduler_{name}", {}).get(frozenset(labels.items()))

    def labels(self, name: str) -> list[dict[str, str]]:
        """Return the labels of all series of one of our metrics."""
        return [dict(labels) for labels in self.samples.get(f"nats_scheduler_{name}", {})]


async def page(url: str, method: str = "GET") -> tuple[int, str]:
    """Return the status and the body of a page."""

    def ask() -> tuple[int, str]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(method, f"{parts.path}?{parts.query}")
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def address_of(process: ChildProcess) -> str:
    """Return the URL at which a process serves its pages, without a path."""
    found = re.search(r"(http://\S+)/metrics", await process.wait_for_line("metrics_served"))
    assert found is not None
    return found[1]


async def scrape(url: str) -> Scrape:
    """Return what a sidecar shows now."""
    status, text = await page(f"{url}/metrics")
    assert status == 200, text
    return Scrape(text)


async def shows(url: str, name: str, least: float, most: float | None = None, **labels: str) -> Scrape:
    """Wait until a sample is from `least` to `most`, and return the scrape; without `most` there is no upper bound."""
    seen: list[float | None] = [None]

    async def is_shown() -> Scrape | None:
        found = await scrape(url)
        seen[0] = value = found.value(name, **labels)
        is_in = value is not None and least <= value and (most is None or value <= most)
        return found if is_in else None

    return await eventually(is_shown, describe=lambda: f"{name}{labels} from {least} to {most}, not {seen[0]},")


async def answers(url: str, status: int, sentence: str = "") -> str:
    """Wait until `/readyz` answers so, with a sentence that contains this."""

    async def is_so() -> str | None:
        found, text = await page(f"{url}/readyz")
        return text if found == status and sentence in text else None

    return await eventually(is_so, describe=f"/readyz is {status}, with {sentence!r}")
