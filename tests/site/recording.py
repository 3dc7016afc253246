"""The pictures of terminals on the page `docs/screens.md`, made from real runs: `python -m tests.site.recording`.

Its rule: what is shown was printed, at the time at which it appears; nothing is typed in by hand.
A recording is an SVG whose lines appear by CSS, so a browser plays it without a script and a forge shows it as a
picture. With reduced motion it is still, and shows the end.
Limit: colours and bold text are kept, and no program that moves the cursor can be recorded; of `top` there is a still.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.screen import Screen
from tests.harness.servers import V2_11, server_binary
from tests.harness.terminal import Terminal, on_terminal
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually, time_reached
from tests.house.sources import ROOT

FOLDER = ROOT / "docs" / "site"
COLUMNS, ROWS = 112, 24
CHAR, LINE, MARGIN = 7.25, 17, 16
"""Width of a character and height of a line, in the units of the picture."""
SAMPLE_SECONDS = 0.05
STILL_SECONDS = 4.0
"""The time for which the end is shown before the recording begins anew."""
DEMO = ("dev", "--demo", "--for")
TOP_FIRES = 60

STYLE = re.compile(r"\x1b\[([0-9;]*)m")
OTHER_SEQUENCE = re.compile(r"\x1b\[[?0-9;]*[A-Za-ln-z]|\r")
COLOURS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#5fd3bc"}
FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">
<style>
text {{ font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d6e2e6; white-space: pre; }}
{rules}
@media (prefers-reduced-motion: reduce) {{ * {{ animation: none !important; }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1b20"/>
<svg x="{margin}" y="{margin}" width="{inner_width}" height="{inner_height}" overflow="hidden">
{text}
</svg>
</svg>
"""


@dataclass(frozen=True)
class Line:
    """A line of a terminal, and when (s) it was printed."""

    at: float
    text: str
    """With the sequences of its colours."""


async def recorded(terminal: Terminal) -> list[Line]:
    """Follow a program on a terminal until it ends; return what it printed, line by line."""
    loop = asyncio.get_running_loop()
    begin, ends = loop.time(), list[float]()
    while True:
        has_ended = terminal.process.returncode is not None
        now = loop.time() - begin
        ends += [now] * (terminal.text.count("\n") - len(ends))
        if has_ended:
            break
        await time_reached(loop.time() + SAMPLE_SECONDS)
    printed = OTHER_SEQUENCE.sub("", terminal.text).split("\n")
    return [Line(at, text) for at, text in zip(ends, printed, strict=False)]


async def demo(seconds: int, folder: Path) -> list[Line]:
    """Record the demo of the README."""
    terminal = await on_terminal(*DEMO, f"{seconds}s", folder=folder)
    terminal.resize(COLUMNS, ROWS)
    try:
        lines = await recorded(terminal)
        assert await terminal.end() == 0, terminal.text
    finally:
        await terminal.close()
    return lines


async def top(folder: Path) -> list[str]:
    """Return the screen of `nats-scheduler top` beside a sidecar that fires."""
    async with machine_in(folder / "server") as machine:
        url = await machine.install(V2_11)
        async with sidecar_on(url) as running, account_on(url) as account:
            for name in ("ORDERS", "SENSORS"):
                await account.create(name)
                await running.ready(name)
            for number in range(TOP_FIRES):
                due = {"Nats-Schedule": f"@at {in_seconds(2 + number / 10)}", "Nats-Schedule-Target": "ORDERS.due"}
                await account.publish(f"ORDERS.reminder.{number}", due)
            every = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "SENSORS.sampled"}
            await account.publish("SENSORS.schedules.temperature", every)
            await account.wait_for("ORDERS", "ORDERS.due", TOP_FIRES // 2)
            return await _screen_of_top(url, folder)


async def _screen_of_top(url: str, folder: Path) -> list[str]:
    terminal = await on_terminal("top", "--server", url, folder=folder)
    terminal.resize(COLUMNS, ROWS)
    screen: list[str] = []

    def is_shown() -> bool:
        screen[:] = _screen(terminal.text)
        return all(any(line.startswith(text) for line in screen) for text in ("ORDERS ", "SENSORS ", "lateness  p50"))

    try:
        await eventually(is_shown, describe=lambda: "\n".join(screen))
        terminal.press("q")
        await terminal.end()
    finally:
        await terminal.close()
    return screen


def _screen(written: str) -> list[str]:
    """Return the lines of a screen that a program wrote to, up to its last complete frame."""
    complete = written[: written.rfind("\x1b[1;1H")] if written.count("\x1b[1;1H") > 1 else written
    screen = Screen(COLUMNS, ROWS)
    try:
        screen.write(complete)
    except AssertionError:
        return []
    return screen.lines()


def moving(lines: list[Line], label: str) -> str:
    """Draw a recording: each line appears when it was printed, and the text moves up when the screen is full."""
    whole = (lines[-1].at if lines else 0.0) + STILL_SECONDS
    rows = [Line(line.at, part) for line in lines for part in _wrapped(line.text)]
    rules = [f".r {{ animation: {whole:.2f}s step-end infinite; }}"]
    steps, texts = [], []
    for number, row in enumerate(rows):
        percent = 100 * row.at / whole
        rules.append(f"@keyframes r{number} {{ 0% {{ opacity: 0; }} {percent:.2f}% {{ opacity: 1; }} }}")
        texts.append(f'<g class="r" style="animation-name: r{number}">{_drawn(number, row.text)}</g>')
        if number >= ROWS:
            steps.append(f"{percent:.2f}% {{ transform: translateY({-LINE * (number - ROWS + 1)}px); }}")
    last = -LINE * max(0, len(rows) - ROWS)
    rules.append(f"@keyframes up {{ 0% {{ transform: none; }} {' '.join(steps)} }}")
    rules.append(f".up {{ transform: translateY({last}px); animation: up {whole:.2f}s step-end infinite; }}")
    return _framed(f'<g class="up">{"".join(texts)}</g>', rules, label, ROWS)


def still(lines: list[str], label: str) -> str:
    """Draw a screen."""
    kept = "\n".join(lines).rstrip().splitlines()
    return _framed("".join(_drawn(number, line) for number, line in enumerate(kept)), [], label, len(kept))


def _framed(text: str, rules: list[str], label: str, rows: int) -> str:
    inner_width, inner_height = round(COLUMNS * CHAR), rows * LINE
    return FRAME.format(
        width=inner_width + 2 * MARGIN,
        height=inner_height + 2 * MARGIN,
        inner_width=inner_width,
        inner_height=inner_height,
        margin=MARGIN,
        rules="\n".join(rules),
        label=escape(label, {'"': "&quot;"}),
        text=text,
    )


def _wrapped(text: str) -> list[str]:
    """Divide a line as a terminal does; one with colours is short enough."""
    if STYLE.search(text) or len(text) <= COLUMNS:
        return [text]
    return [text[begin : begin + COLUMNS] for begin in range(0, len(text), COLUMNS)]


def _drawn(row: int, text: str) -> str:
    """Draw a line as spans of one style each."""
    spans, style = [], ""
    for index, part in enumerate(STYLE.split(text)):
        if index % 2:
            style = _style(part.split(";"), style)
        elif part:
            spans.append(f"<tspan{style}>{escape(part)}</tspan>")
    return f'<text x="0" y="{row * LINE + 12}">{"".join(spans)}</text>\n'


def _style(codes: list[str], before: str) -> str:
    if set(codes) <= {"", "0"}:
        return ""
    colour = next((f' fill="{COLOURS[code]}"' for code in codes if code in COLOURS), "")
    return (
        colour + (' font-weight="bold"' if "1" in codes else "") + (' opacity="0.65"' if "2" in codes else "") or before
    )


async def make(folder: Path, seconds: int) -> None:
    """Make all pictures of terminals."""
    server_binary(V2_11)
    with tempfile.TemporaryDirectory() as temporary:
        lines = await demo(seconds, Path(temporary) / "demo")
        (folder / "demo.svg").write_text(moving(lines, "nats-scheduler dev --demo, recorded"), "utf-8")
        screen = await top(Path(temporary) / "top")
        (folder / "top.svg").write_text(still(screen, "nats-scheduler top beside a sidecar that fires"), "utf-8")


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER, 14))
