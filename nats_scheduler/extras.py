"""The extras of the distribution: what of them is not installed, and what to type to install it.

Rule: only the standard library is imported, because this runs where no extra is installed.
Cost: some microseconds for each package that is looked for.
"""

from importlib.util import find_spec

PACKAGES = {
    "run": ("click", "nkeys", "prometheus_client", "pydantic", "rich", "typing_extensions", "uvicorn", "yaml"),
    "web": ("jinja2", "starlette"),
}
"""What is imported of an extra; what `run` installs is there with `web` too."""


def missing(extra: str) -> list[str]:
    """Return the packages of an extra that cannot be imported."""
    return [name for name in PACKAGES[extra] if find_spec(name) is None]


def installation(extra: str) -> str:
    """Return what to type to install an extra: there is no release on an index yet."""
    return f"pip install '.[{extra}]' in a clone of nats-scheduler"
