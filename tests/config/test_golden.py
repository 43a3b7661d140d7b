"""The output of ``waypost check-config``, and the sentence of every fault, kept as a golden file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.config.load import ConfigError, load_text
from tests.config.test_client_auth import FAULTS as CLIENT_AUTH_FAULTS
from tests.config.test_ehlo_keywords import FAULTS as KEYWORD_FAULTS
from tests.config.test_milters import FAULTS as MILTER_FAULTS
from tests.config.test_tls import FAULTS as TLS_FAULTS
from tests.config.test_transports import FAULTS as TRANSPORT_FAULTS
from tests.config.wrong_settings import FAULTS
from tests.golden_files import Golden

MISTAKES = """\
home = 3
proceses = 2
[receiver]
listen = []
processes = 0
proceses = 2
tls_key = "key.pem"
[relay]
networks = ["0.0.0.0/0"]
domains = ["*"]
[queue]
retry_ladder_s = [5, 1]
commit_delay_ms = "short"
[scheduler]
minimal_backoff_time = 5000
process_limit = 5
[export]
enabled = "yes"
[portal]
second_factor_for = ["some"]
[transports.smtp]
tls = "must"
destination_concurrency_positive_feedback = "2/concurrency"
[routes]
"example.org" = "smpt:mail.example.org"
"""


def test_what_check_config_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    """For an empty file, for a file with many mistakes, and line by line for a file with each mistake alone."""
    file = tmp_path / "waypost.toml"
    texts = []
    for title, text in (("An empty file", ""), ("A file with many mistakes", MISTAKES)):
        file.write_text(text)
        status = main(["check-config", "--config", str(file)])
        output = capsys.readouterr()
        texts.append(f"# {title}: status {status}\n\n{output.out}{output.err}")
    sentences = []
    for text, _ in (*FAULTS, *TRANSPORT_FAULTS, *MILTER_FAULTS, *TLS_FAULTS, *CLIENT_AUTH_FAULTS, *KEYWORD_FAULTS):
        with pytest.raises(ConfigError) as error:
            load_text(Path("/etc/waypost/waypost.toml"), text)
        sentences.append(str(error.value))
    texts.append("# Each mistake alone\n\n" + "\n".join(sentences))
    golden("check-config.txt", "\n".join(texts).replace(str(tmp_path), "/etc/waypost"))
