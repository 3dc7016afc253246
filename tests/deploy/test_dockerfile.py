"""The Dockerfile: pinned bases, a user without rights, sources that exist, nothing left of the build."""

import json
import re

import pytest

from nats_scheduler.settings.fields import IMAGE_VARIABLES
from tests.deploy.files import DEPLOY, DOCKERFILE, EVERY_ADDRESS, ROOT, final_stage, instructions, rests

KNOWN = {
    *("ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def copied_from_the_repository() -> list[str]:
    """List the sources of every COPY that does not take from another stage."""
    copies = [rest.split() for rest in rests("COPY") if not rest.startswith("--from=")]
    return [source for words in copies for source in words[:-1]]


def test_every_instruction_is_one_that_this_reader_knows() -> None:
    assert {one.name for one in instructions()} <= KNOWN


def test_the_base_image_is_pinned_by_digest() -> None:
    (argument,) = rests("ARG")
    name, _, base = argument.partition("=")
    assert re.fullmatch(r"python:3\.12\.\d+-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert [rest.split()[0] for rest in rests("FROM")] == [f"${{{name}}}"] * 2, "a stage that builds, and the image"


def test_packages_are_installed_by_the_hashes_of_the_lock_files_or_from_what_these_gave() -> None:
    commands = [command for rest in rests("RUN") for command in rest.split("&&") if "bin/pip" in command]
    unpinned = [one for one in commands if "--require-hashes" not in one and "--no-index" not in one]
    assert [one.split("bin/pip ")[1] for one in unpinned] == [
        "wheel --no-deps --no-build-isolation --wheel-dir /wheels ."
    ]
    assert all("--no-build-isolation" in one for one in commands if "bin/pip wheel" in one)


def test_nothing_keeps_the_image_from_another_architecture() -> None:
    text = DOCKERFILE.read_text("utf-8").partition("ARG BASE=")[2]
    assert not re.search(r"--platform|amd64|x86_64|arm64|aarch64", text)


@pytest.mark.parametrize("source", copied_from_the_repository())
def test_what_is_copied_exists_and_is_let_into_the_context(source: str) -> None:
    assert (ROOT / source).exists()
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert f"!{source.removeprefix('./')}" in let_in


def test_the_image_runs_as_a_user_without_rights() -> None:
    users = [one.rest for one in final_stage() if one.name == "USER"]
    assert len(users) == 1
    assert int(users[0].split(":")[0]) >= 1000, "a number, so that Kubernetes can tell that it is not root"
    last_run = max(index for index, one in enumerate(final_stage()) if one.name == "RUN")
    user = next(index for index, one in enumerate(final_stage()) if one.name == "USER")
    assert user > last_run


def test_nothing_of_the_build_is_left_in_the_image() -> None:
    assert "PIP_NO_CACHE_DIR=1" in " ".join(rests("ENV"))
    assert not any("pip" in one.rest for one in final_stage() if one.name == "RUN")


def test_the_image_is_labelled_and_ends_by_sigterm() -> None:
    labels = " ".join(rests("LABEL"))
    assert {"title", "description", "licenses"} <= set(re.findall(r"org\.opencontainers\.image\.(\w+)=", labels))
    assert rests("STOPSIGNAL") == ["SIGTERM"]


def test_the_program_is_started_without_a_shell() -> None:
    assert json.loads(rests("ENTRYPOINT")[-1]) == ["nats-scheduler"]
    assert json.loads(rests("CMD")[-1])[0] == "run"
    check = json.loads(rests("HEALTHCHECK")[-1].partition("CMD ")[2])
    assert check == ["python", "/opt/nats-scheduler/healthcheck.py"]
    assert "COPY deploy/healthcheck.py /opt/nats-scheduler/healthcheck.py" in DOCKERFILE.read_text("utf-8")


def test_the_metrics_of_the_image_are_reached_from_outside_the_container() -> None:
    given = dict(re.findall(r"\b(NATS_SCHEDULER_METRICS_\w+)=(\S+)", " ".join(rests("ENV"))))
    port = {IMAGE_VARIABLES["metrics_port"]: rests("EXPOSE")[0]}
    assert given == {"NATS_SCHEDULER_METRICS_ADDRESS": EVERY_ADDRESS, **port}
