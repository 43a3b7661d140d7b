"""[traces] in the configuration file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.config.document import ConfigError
from mailcore.config.load import load_text

GOOD = 'endpoint = "http://127.0.0.1:4318/v1/traces"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[traces]\nendpoint = "127.0.0.1:4318"', "2: [traces] endpoint must be an address for OTLP over HTTP"),
        ('[traces]\nendpoint = "http://127.0.0.1:4318"', "2: [traces] endpoint must be an address for OTLP over HTTP"),
        ('[traces]\nendpoint = "http://a:b@x/v1/traces"', "2: [traces] endpoint must be an address for OTLP over HTTP"),
        ('[traces]\nendpoint = "http://x:99999/v1"', "2: [traces] endpoint must be an address for OTLP over HTTP"),
        ('[traces]\nendpoint = "grpc://x:4317/v1"', "2: [traces] endpoint must be an address for OTLP over HTTP"),
        ("[traces]\nratio = 1.5", "2: [traces] ratio must be"),
        (f"[traces]\n{GOOD}[export]\nenabled = false", "2: [traces] endpoint needs the exporter"),
        (
            '[traces]\ntrace_id = "traceparent"',
            "2: [traces] trace_id needs the header field; set tag_header in [receiver]",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_text(tmp_path / "waypost.toml", f'{text}\n[relay]\ndomains = ["a.example"]\n')
    assert reason in str(error.value)


def test_a_header_of_any_case_is_the_right_one(tmp_path: Path) -> None:
    text = f'[receiver]\ntag_header = "Traceparent"\n[traces]\n{GOOD}trace_id = "traceparent"\n'
    assert load_text(tmp_path / "waypost.toml", text).traces.trace_id == "traceparent"


def test_without_the_setting_the_exporter_loads_nothing_of_it() -> None:
    """Law: spans-from-the-log; what is off costs nothing."""
    program = (
        "import sys; from mailcore import processes; from mailcore.config.settings import Settings\n"
        "from pathlib import Path; p = Path('/nonexistent')\n"
        "settings = Settings(home=p, queue_directory=p, spool_directory=p, run_directory=p, log_directory=p)\n"
        "processes.ROLES['exporter'].load().args[0](settings)\n"
        "found = [name for name in sys.modules if name.startswith('mailcore.traces')]\n"
        "import threading; assert not found, found; assert 'tracer' not in {each.name for each in threading.enumerate()}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
