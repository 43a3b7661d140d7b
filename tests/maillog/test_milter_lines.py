"""The lines about milters: each names the milter, what happened, and what was done."""

from __future__ import annotations

import json
from pathlib import Path

from mailcore.maillog import MailLog

ADDRESS = "inet:127.0.0.1:11332"


def test_each_line_names_the_milter(tmp_path: Path) -> None:
    log = MailLog(tmp_path, "mx")
    log.milter_failed(ADDRESS, "END-OF-MESSAGE", "did not answer within 300 s", "tempfail", "192.0.2.7", "4abc")
    log.milter_acted(ADDRESS, "MAIL", "discard", "", "192.0.2.7", "4abc", "a@x.example", ["b@x.example"])
    log.milter_acted(ADDRESS, "END-OF-MESSAGE", "hold", "looks\nbad", "192.0.2.7", "4abc", "", ["b@x.example"] * 22)
    log.local_milter_failed(ADDRESS, "CONNECT", "broke the protocol", "accept", "4def")
    log.local_milter_acted("", "END-OF-MESSAGE", "tempfail", "later", "4def", "a@x.example", ["b@x.example"])
    log.refused("MAIL", "550 5.7.1 no", "192.0.2.7", sender="a@example.com", helo="client.example", milter=ADDRESS)
    log.flush()
    log.close()
    lines = [line.split("]: ", 1)[1] for line in (tmp_path / "mail.log").read_text().splitlines()]
    assert lines == [
        f"warning: 4abc: milter {ADDRESS} did not answer within 300 s; END-OF-MESSAGE from [192.0.2.7]; "
        "default_action=tempfail",
        f"4abc: milter-discard: MAIL from unknown[192.0.2.7]: milter {ADDRESS}; from=<a@x.example> to=<b@x.example>",
        f"4abc: milter-hold: END-OF-MESSAGE from unknown[192.0.2.7]: milter {ADDRESS}: looks\\nbad; from=<> "
        f"to={','.join(['<b@x.example>'] * 20)} and 2 more",
        f"warning: 4def: milter {ADDRESS} broke the protocol; CONNECT from localhost[127.0.0.1]; default_action=accept",
        "4def: milter-tempfail: END-OF-MESSAGE from localhost[127.0.0.1]: milters: later; from=<a@x.example> to=<b@x.example>",
        "NOQUEUE: milter-reject: MAIL from unknown[192.0.2.7]: 550 5.7.1 no; from=<a@example.com> proto=ESMTP "
        f"helo=<client.example> milter={ADDRESS}",
    ]
    events = [json.loads(line) for line in (tmp_path / "mail.jsonl").read_text().splitlines()]
    assert [(each["event"], each["milter"]) for each in events] == [
        ("milter_failed", ADDRESS),
        ("milter_acted", ADDRESS),
        ("milter_acted", ADDRESS),
        ("milter_failed", ADDRESS),
        ("milter_acted", ""),
        ("refused", ADDRESS),
    ]
    assert [each.get("client_address") for each in events[3:5]] == ["127.0.0.1"] * 2
