"""``waypost status`` about what needs a person: certificates that receivers cannot use, and a node that waits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mailcore.cli.main import main
from tests.cli.running_control import Waypost
from tests.config.test_waiting import WORDS, written
from tests.control.running_control import RunningControl
from tests.doctor.sample_host import NOBODY, certificate, of_nobody, open_to_all


async def problems(waypost: Waypost) -> list[str]:
    found: list[str] = (await waypost("status", "--json")).json["problems"]
    return found


@pytest.mark.parametrize(
    ("days_left", "days_old", "words"), [(90, 1, ""), (-2, 60, ": expired on "), (90, -3, ": not valid before ")]
)
async def test_a_certificate_that_is_not_valid_now_is_a_problem(
    running: RunningControl, waypost: Waypost, days_left: float, days_old: float, words: str
) -> None:
    pem = certificate(running.config.parent, "mail.example.org", days_left, days_old)
    text = running.config.read_text().replace("[receiver]", f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"')
    running.config.write_text(text)
    found = await problems(waypost)
    assert len(found) == bool(words)
    assert all(each.startswith(f"certificate {pem}{words}") for each in found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look with the rights of another user")
async def test_a_key_that_only_root_can_read_is_a_problem(running: RunningControl, waypost: Waypost) -> None:
    open_to_all(running.config.parent)
    pem = certificate(running.config.parent, "mail.example.org", 90)
    pem.chmod(0o600)
    text = running.config.read_text().replace("[receiver]", f'[receiver]\ntls_certificate = "{pem}"\ntls_key = "{pem}"')
    running.config.write_text(text)
    assert await problems(waypost) == [], "no receiver runs"
    with of_nobody(running.settings, "receiver.0") as pid:
        (running.settings.run_directory / "processes.json").write_text(
            json.dumps({"supervisor": 10, "receiver.0": pid})
        )
        (problem,) = set(await problems(waypost))
        assert problem.startswith(
            f"certificate {pem}: the receivers' user nobody cannot read {pem}: Permission denied; "
        )
        os.chown(pem, 0, NOBODY)
        pem.chmod(0o640)
        assert await problems(waypost) == []


@pytest.mark.parametrize("is_in_order", [True, False])
def test_only_a_spare_is_in_order_among_nodes_that_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_in_order: bool
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text(f'home = "{tmp_path}"\n[nodes]\ndatabase = "host=/nowhere dbname=waypost"\nnode = "a"\n')
    written(tmp_path / "run" / "shards" / "00", os.getpid(), "owner", is_in_order=is_in_order)
    status = 0 if is_in_order else 1
    assert main(["--config", str(config), "status", "--json"]) == status
    shown = json.loads(capsys.readouterr().out)
    why = shown["waits"]
    assert shown["problems"] == ([] if is_in_order else [why])
    assert (shown["error"] or {}).get("message") == (None if is_in_order else why)
    assert main(["--config", str(config), "status"]) == status
    out, err = capsys.readouterr()
    assert (why in out, why in err) == (is_in_order, not is_in_order)


async def test_a_shard_that_waits_beside_one_that_runs_is_a_problem(running: RunningControl, waypost: Waypost) -> None:
    own = running.settings.run_directory / "shards" / "00"
    written(own, os.getpid(), "owner", is_in_order=True)
    assert await problems(waypost) == []
    written(own, os.getpid(), "owner", is_in_order=False)
    said = await waypost("status", "--json")
    assert (said.status, said.json["problems"]) == (1, [f"This node waits: {WORDS}."])
