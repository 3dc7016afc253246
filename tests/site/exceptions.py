"""The parts of the pages that are not run as they stand, and why: the whole list.

The rule: a block of commands runs, or it stands here with its reason and is only parsed. What is left out of a command
or written otherwise for a test, such as an address, is here too.
"""

import re

INSTALLED = "it installs into the machine, and needs root and systemd: tests/deploy/test_deploy_files.py reads the unit"
NEEDS_DOCKER = "it needs an engine of Docker: tests/deploy/test_image.py builds and runs the image where there is one"
NEEDS_KUBERNETES = "it needs a cluster: tests/deploy/test_chart.py renders the chart, and checks what comes out"
THE_SUITE = "it is the suite, or a part of it, that this test is in"
HOURS = "it takes minutes to hours of all cores: the tests of the same folder run a little of it"

NOT_RUN = {
    ("README.md", ".venv/bin/pytest"): THE_SUITE,
    ("CONTRIBUTING.md", ".venv/bin/pytest -n 2 -m fast"): THE_SUITE,
    ("CONTRIBUTING.md", ".venv/bin/ruff check ."): "tests/house/test_style.py runs these",
    ("CONTRIBUTING.md", ".venv/bin/pip install --quiet --require-hashes"): (
        "it installs the programs of the site: CI does the same, and tests/site/test_site.py builds the site with them"
    ),
    ("docs/operating/performance.md", ".venv/bin/python -m tests.bench"): HOURS,
    ("docs/tutorials/debounce-by-replacement.md", "nats stream get "): "nothing fires yet: `LATER` of the reader",
    ("docs/operating/deploy.md", "docker "): NEEDS_DOCKER,
    ("docs/operating/deploy.md", 'export NATS_SCHEDULER_WEB_TOKEN="$(openssl rand -hex 24)"'): NEEDS_DOCKER,
    ("docs/operating/deploy.md", "sudo python3 -m venv /opt/nats-scheduler"): INSTALLED,
    ("docs/operating/deploy.md", "/opt/nats-scheduler/bin/nats-scheduler settings show"): INSTALLED,
    ("docs/operating/kubernetes.md", "kubectl "): NEEDS_KUBERNETES,
    ("docs/operating/kubernetes.md", "helm "): NEEDS_KUBERNETES,
}
"""Page and beginning of the block, after what `LEFT_OUT` leaves out, and the reason."""

LEFT_OUT = (
    re.compile(r"python3 -m venv \.venv && "),
    re.compile(r"\.venv/bin/pip install --quiet --editable '[^']+'(?: && |$)"),
    re.compile(r"^pip install (?:\.|'\.\[\w+\]')$", re.M),
)
"""The commands that install the package: the tests run where it is installed."""
INSTALLED_PROGRAMS = re.compile(r"(?<![\w/])\.venv/bin/")
"""Where the pages find what was installed; a test finds it on the path."""

RUN_BY_OTHER_TESTS = frozenset({"docs/operating/scale.md", "docs/operating/security.md"})
"""Pages of programs that `test_a_stream_is_divided_as_the_page_shows` and
`test_each_team_has_its_own_and_nothing_of_another` run; their commands are parts of the programs, or install."""

RUNS_ON = (
    (re.compile(r"nats-scheduler dev (?!.*--for )", re.S), "Ctrl-C ends this"),
    (re.compile(r"nats-scheduler run\b"), r"\bconnected\b"),
    (re.compile(r"nats-scheduler web\b"), r"http://127\.0\.0\.1:\d+"),
    (re.compile(r"nats-scheduler watch\b"), r"^stream \w+ is \w+:|^no stream"),
    (re.compile(r"nats sub\b"), "Subscribing on"),
)
"""Commands that run until they are ended, and what they print when they are ready: they go on beside the others."""

EXIT_CODES = (
    (re.compile(r"nats-scheduler doctor"), {0, 3}, "the findings of the account: 3 says that there are warnings"),
    (re.compile(r"nats-scheduler diff"), {0, 1}, "1 says that there are differences"),
    (re.compile(r"nats-scheduler check '30 9 \* \* mon-fri'"), {1}, "the page shows how a mistake is found"),
    (re.compile(r"nats-scheduler add CRON cron\.shop\.orders"), {1}, "the page shows what the operator does not allow"),
    (re.compile(r"promtool check config"), {0, 1}, "Debian's is built without the jobs for Kubernetes"),
)
"""Exit codes that are no failures, by command."""
ASKS = re.compile(r"nats-scheduler (?:apply|rm|pause|resume) (?!.*(?:--yes|--dry-run|\| |- ))", re.S)
"""Commands that may ask on a terminal: they get one, and `y` is typed."""


WAITED_FOR = re.compile(r"nats stream get |nats consumer next ")
"""Commands that fail until a fire is stored: a reader types them again if it was too early."""
READ = re.compile(r"nats-scheduler (?:history|ls|info|failures|instances|doctor|stream ls)\b")
"""Commands that change nothing: at the end of a block, they are typed again until they print what the page shows.

A second one that shows nothing is not typed.
"""


def sign_of_running(command: str) -> str | None:
    """Return what a command that runs on prints when it is ready; None for a command that ends by itself."""
    return next((sign for pattern, sign in RUNS_ON if pattern.match(command)), None)


def without_installing(block: str) -> str:
    """Leave out what installs the package."""
    for pattern in LEFT_OUT:
        block = pattern.sub("", block)
    return block.strip()


def reason_not_to_run(page: str, block: str) -> str | None:
    """Return why a block is not run."""
    begin = without_installing(block)
    return next((why for (where, text), why in NOT_RUN.items() if where == page and begin.startswith(text)), None)
