"""The compose file: a server that is ready first, a sidecar without rights, nothing lost at a restart."""

import shutil
import subprocess
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nats_scheduler.runtime.embedded import HOST, free_port
from nats_scheduler.settings.fields import setting_fields
from tests.deploy.files import COMPOSE, DEPLOY, EVERY_ADDRESS, compose, rests
from tests.deploy.running import answer_of
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually

SERVICES = ("nats", "scheduler", "web")
HEALTHY_SECONDS = 10.0
"""Longest wait for the server to be healthy."""


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_watched_and_comes_back(name: str) -> None:
    service = compose()["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"
    assert ":" in service["image"]


def test_the_sidecar_waits_for_a_healthy_server() -> None:
    waits = compose()["services"]["scheduler"]["depends_on"]
    assert waits == {"nats": {"condition": "service_healthy"}}
    assert compose()["services"]["scheduler"]["environment"]["NATS_URL"] == "nats://nats:4222"


def test_the_sidecar_has_no_rights_and_time_to_drain() -> None:
    sidecar = compose()["services"]["scheduler"]
    assert sidecar["read_only"] is True
    assert sidecar["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in sidecar["security_opt"]
    assert int(sidecar["stop_grace_period"].removesuffix("s")) > 10


def test_the_store_is_a_volume_and_the_streams_are_a_folder_of_the_repository() -> None:
    store = compose()["services"]["nats"]["volumes"][0].split(":")
    assert store[0] in compose()["volumes"]
    assert store[1] in compose()["services"]["nats"]["command"]
    source, target, mode = compose()["services"]["scheduler"]["volumes"][0].split(":")
    assert (DEPLOY / source).resolve().is_dir()
    assert compose()["services"]["scheduler"]["environment"]["NATS_SCHEDULER_STREAMS_FOLDER"] == target
    assert mode == "ro"


def test_the_image_is_built_from_our_dockerfile_and_checked_as_it_says() -> None:
    build = compose()["services"]["scheduler"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"
    check = compose()["services"]["scheduler"]["healthcheck"]["test"][1:]
    assert all(word in rests("HEALTHCHECK")[-1] for word in check)


@pytest.mark.server
async def test_the_server_starts_as_written_and_passes_its_health_check(tmp_path: Path) -> None:
    server = compose()["services"]["nats"]
    url = urlsplit(server["healthcheck"]["test"][-1])
    port, monitor = str(free_port()), str(free_port())
    here = {"/data": str(tmp_path), str(url.port): monitor}
    arguments = [here.get(word, word) for word in server["command"]]
    command = [str(server_binary(V2_11)), "--addr", HOST, "--port", port, *arguments]

    with ChildProcess(command, tmp_path, name="nats"):
        await eventually(
            lambda: answer_of(int(monitor), f"{url.path}?{url.query}").status == HTTPStatus.OK,
            within_seconds=HEALTHY_SECONDS,
            describe="a healthy server",
        )


@pytest.mark.server
def test_docker_compose_reads_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("no docker compose to read the file with")
    answer = subprocess.run(
        [docker, "compose", "--file", str(COMPOSE), "config", "--quiet"], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr


def test_the_status_page_is_for_this_machine_and_has_a_token() -> None:
    page = compose()["services"]["web"]
    port = str(setting_fields()["web_port"].default)
    assert page["ports"] == [f"{HOST}:{port}:{port}"]
    assert port in page["healthcheck"]["test"][-1]
    assert page["image"] == compose()["services"]["scheduler"]["image"]
    assert "${NATS_SCHEDULER_WEB_TOKEN:-}" in page["environment"].values()
    assert (page["read_only"], page["cap_drop"], page["profiles"]) == (True, ["ALL"], ["web"])


def test_the_metrics_are_for_this_network_and_not_for_the_host() -> None:
    sidecar = compose()["services"]["scheduler"]
    assert sidecar["environment"]["NATS_SCHEDULER_METRICS_ADDRESS"] == EVERY_ADDRESS
    assert "ports" not in sidecar
