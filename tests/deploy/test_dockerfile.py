"""The Dockerfile: pinned bases, a user without rights, sources that exist, nothing left of the build."""

import json
import re

import pytest

from tests.deploy.files import DEPLOY, DOCKERFILE, EVERY_ADDRESS, ROOT, final_stage, instructions, rests

KNOWN = {
    *("FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "EXPOSE", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


def copied_from_the_repository() -> list[str]:
    """List the sources of every COPY that does not take from another stage."""
    copies = [rest.split() for rest in rests("COPY") if not rest.startswith("--from=")]
    return [source for words in copies for source in words[:-1]]


def test_every_instruction_is_one_that_this_reader_knows() -> None:
    assert {one.name for one in instructions()} <= KNOWN


def test_base_images_are_pinned_by_tag() -> None:
    bases = [rest.split()[0] for rest in rests("FROM")]
    assert len(bases) == 2, "a stage that builds, and the image"
    assert all(re.fullmatch(r"python:3\.12[\w.]*-slim-\w+", base) for base in bases)


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
    assert given == {"NATS_SCHEDULER_METRICS_ADDRESS": EVERY_ADDRESS, "NATS_SCHEDULER_METRICS_PORT": rests("EXPOSE")[0]}
