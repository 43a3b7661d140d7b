"""The page of a report: balance, figures, bars, tables that sort, links; strangers' text at its worst; files to download."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone

from appliance.reports import report_store, rows
from appliance.reports.content import altered_words, content_of
from appliance.reports.models import Preferences, Run, State
from appliance.reports.report_store import Period
from appliance.reports.tables import Kind, columns_of, table
from appliance.reports.writing import Writing
from tests.appliance.accounts.sample_users import client_of
from tests.appliance.markup import markup_of
from tests.appliance.reports.made import HOSTILE, make_report, tables
from tests.appliance.reports.reading import DAY, URL, page, section

pytestmark = pytest.mark.django_db


def body(answer: HttpResponseBase) -> bytes:
    return b"".join(answer) if isinstance(answer, StreamingHttpResponse) else answer.content  # type: ignore[attr-defined]


def test_a_report_that_balances(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    text = page()
    assert "Wednesday 18 November 2026" in text
    assert 'class="balance notice success"' in text
    assert "It balances." in text
    for title in (
        "Anomalies",
        "Destinations",
        "Providers",
        "Top senders",
        "TLS",
        "Windows and dead times",
        "Hours",
    ):
        assert f"<h2>{title}</h2>" in text
    assert "arrivals" not in text
    assert "Arrivals" not in text
    assert "Run now" not in text


def test_one_that_does_not_balance_is_red_and_names_the_messages(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY, balances=False)
    text = page()
    assert 'class="balance notice error" role="alert"' in text
    assert "It does not balance: 1 recipient ended that never came in." in text
    assert '/queue/search/?q=0123456789ABCDEF">' in text
    assert "no event of its acceptance" in text
    assert "journal.0.parquet" in text
    assert "journal from 1000 to 2000" in text
    assert "journal, deferred: 4 exported, 3 in the files" in text
    assert "≠" in text
    assert "First make the report again" in text
    assert "waypost export --now" in text


def test_one_that_nobody_counted_is_neither_green_nor_red(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.DAY, DAY, balances=None)
    path = version / "report.json"
    told = json.loads(path.read_text())
    told["balance"] |= {"accepted": 0, "delivered": 0, "queued_at_start": None, "queued_at_end": None}
    path.write_text(json.dumps(told))
    text = page()
    assert 'class="balance notice warning"' in text
    assert 'class="sum"' not in text, "an equation of nothing, beside figures of something"


def test_strangers_text_does_nothing(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY, damaged=[f"{HOSTILE}: cannot be read"])
    text = page()
    assert "<script>alert" not in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "=cmd|" in text, "shown, but harmless"
    assert "Set aside: " in text
    assert "restore it from a backup; then make the report of the day again" in text


def test_figures_and_units(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    text = page()
    assert '<span class="figure">1,200</span><span class="label">messages accepted' in text
    assert "123 MB" in text
    row = section(text, "destinations")
    assert "90.0%" in row
    assert "5 min 12 s" in row
    assert "sum us" not in row
    compared = section(text, "comparison")
    assert "all mail" in compared
    assert "50.0%" in compared
    assert "domain2" not in compared, "it does not stand out"


def test_tables_sort_by_what_is_asked_for_and_nothing_else(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)

    def first(sort: str) -> str:
        found = re.search(
            r"<tbody><tr><td[^>]*><a [^>]*><bdi>(.*?)</bdi>",
            section(page(f"{URL}?destinations={sort}"), "destinations"),
        )
        assert found is not None
        return found[1]

    assert first("") == "smtp:domain10.example"
    assert first("attempts") == "smtp:=cmd|&quot;/c calc&quot;!A1&lt;script&gt;alert(1)&lt;/script&gt;\\u202e\\x1b[31m"
    assert first("destination").startswith("smtp:=cmd")
    assert first("-destination") == "smtp:domain9.example"
    for wrong in ("delays", "-", "x" * 500, "delay_max_us", "%00", "destination;drop"):
        assert first(wrong) == "smtp:domain10.example"
    assert 'aria-sort="descending"' in section(page(), "destinations")


def test_a_long_table_says_how_much_more_there_is_and_shows_the_first_of_the_whole(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY, given=tables(destinations=500))
    text = section(page(), "destinations")
    assert "500 rows, the first 200 shown" in text
    assert "smtp:domain498.example" in text


def test_links_lead_into_queue_and_search(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    text = page()
    assert 'href="/queue/?destination=smtp%3Adomain1.example"' in text
    assert 'href="/queue/?sender=%3C%3E"' in text
    assert 'href="/queue/search/?q=news%40sender.example"' in text


def test_bars_are_of_the_hours_and_of_the_days_before(reports_directory: Path) -> None:
    for day in (16, 18):
        make_report(reports_directory, Period.DAY, date(2026, 11, day))
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    content = content_of(report, Writing())
    assert (len(content.inside.labels), content.inside.labels[0], content.inside.values["deferred"][23]) == (
        24,
        "00:00",
        23.0,
    )
    assert content.trend.labels == ["Mon 16 Nov", "Tue 17 Nov", "Wed 18 Nov"]
    assert content.trend.values["accepted"] == [1200.0, None, 1200.0]
    told = re.search(r'<script id="lines-trend" type="application/json">(.*?)</script>', page())
    assert told is not None
    assert json.loads(told[1])["labels"][0] == "Mon 16 Nov"


@pytest.mark.parametrize(
    "path",
    ["day/2026-11-19", "week/2026-11-18", "month/2026-11-02", "day/tomorrow", "year/2026-01-01", "day/20261118",
     "day/0001-01-01", "day/9999-12-31", "week/2026-W47-1"],
)  # fmt: skip
def test_what_there_is_none_of_is_not_found(reports_directory: Path, path: str) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    assert client_of("viewer").get(f"/reports/{path}/").status_code == 404


def test_a_day_that_is_being_made_shows_how_far_and_what_was_there(reports_directory: Path) -> None:
    Run.objects.create(day=DAY, state=State.RUNNING, who="x", stage="reasons", share=0.5, begun_at=timezone.now())
    assert "50 %: <bdi>reasons</bdi>" in page()
    make_report(reports_directory, Period.DAY, DAY)
    text = page()
    assert "50 %: <bdi>reasons</bdi>" in text
    assert "It balances." in text


def test_a_day_that_failed_says_why(reports_directory: Path) -> None:
    Run.objects.create(day=DAY, state=State.FAILED, who="x", words="no Java <17>")
    text = page()
    assert "The report could not be made:</strong> <bdi>no Java &lt;17&gt;" in text
    make_report(reports_directory, Period.DAY, DAY)
    assert "The report could not be made again" in page()


def test_a_run_that_failed_behind_its_day_is_of_weeks_and_months(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    began = timezone.now() - timedelta(minutes=1)
    it = Run.objects.create(day=DAY, state=State.FAILED, who="x", words="killed by signal 9", begun_at=began)
    text = page()
    assert "but its weeks and months were not updated:</strong> <bdi>killed by signal 9" in text
    assert "The report could not be made" not in text
    Run.objects.filter(pk=it.pk).update(begun_at=timezone.now() + timedelta(minutes=1))
    assert "The report could not be made again" in page()


def test_a_day_without_events_says_so(reports_directory: Path) -> None:
    given: dict[str, list[dict[str, Any]]] = {"totals": [dict.fromkeys(tables()["totals"][0], 0)]}
    make_report(reports_directory, Period.DAY, DAY, given=given)
    assert "No mail: there are no events in this period." in page()


def test_a_day_there_is_nothing_of_says_what_can_be_done(reports_directory: Path) -> None:
    viewer, operator = client_of("viewer"), client_of("operator")
    assert "An operator can request it" in markup_of(viewer.get(URL))
    text = markup_of(operator.get(URL))
    assert "Run now</button>" in text
    tomorrow = timezone.now().date() + timedelta(days=1)
    text = markup_of(operator.get(f"/reports/day/{tomorrow}/"))
    assert "This day is not over" in text
    assert "Run now</button>" not in text


def test_what_stands_out_is_said_at_the_top(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    found = re.search(r'id="outstanding">.*?</p>', page())
    assert found is not None
    assert "all mail: bounced 60 (3 the day before)" in found[0]
    assert "smtp:domain1.example: deferred % 50.0% (1.0% the day before)" in found[0]
    marked = re.findall(r'<td class="num out" title="anomaly">(.*?)</td>', section(page(), "destinations"))
    assert marked == ["1.0%"], "in its own table, too"
    quiet = tables() | {"comparison": [row | {"stands_out": False} for row in tables()["comparison"]]}
    make_report(reports_directory, Period.DAY, DAY, given=quiet)
    text = page()
    assert 'id="outstanding"' not in text
    assert "No anomalies." in section(text, "comparison")


def test_the_page_is_written_in_the_readers_way(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    Preferences.objects.create(numbers="de")
    text = page()
    assert "<h1>Wednesday 18 November 2026</h1>" in text
    assert '<span class="figure">1.200</span><span class="label">messages accepted' in text
    assert 'data-thousands="."' in text
    assert "90,0\u00a0%" in section(text, "destinations")
    assert "7,25" in section(text, "windows")
    assert "Wed 2026-11-18" in page("/reports/")


def test_a_damaged_table_says_so_and_the_others_are_there(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.DAY, DAY)
    (version / "reasons" / "part-0.parquet").write_bytes(b"PAR1 no more")
    text = page()
    assert "cannot read the table reasons" in section(text, "reasons")
    assert "smtp:domain1.example" in section(text, "destinations")
    (version / "totals" / "part-0.parquet").write_bytes(b"")
    assert client_of("viewer").get(URL).status_code == 200
    assert client_of("viewer").get(f"{URL}reasons.csv").status_code == 500
    assert client_of("viewer").get(f"{URL}reasons.parquet").status_code == 500


def test_a_flipped_bit_is_no_number(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.DAY, DAY, given={"reasons": []})
    (path,) = (version / "reasons").glob("*.parquet")
    many = pa.table({"reason": [f"reason {number}" for number in range(1000)]})
    pq.write_table(many, path, write_page_checksum=True, compression="none", use_dictionary=False)
    flipped = bytearray(path.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    with pytest.raises(rows.Unreadable, match="cannot read the table reasons"):
        list(rows.batches(report, "reasons", ["reason"], 1000))


def test_a_balance_whose_numbers_do_not_add_up_is_red(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.DAY, DAY)
    path = version / "report.json"
    path.write_text(path.read_text().replace('"delivered": 1100', '"delivered": 1000'))
    text = page()
    assert 'class="balance notice error" role="alert"' in text
    assert "This report is damaged: it is marked as balanced, but its numbers are not. Make the report again." in text
    assert "It balances." not in text


def test_a_table_nobody_named_is_shown_with_units_by_the_names_of_its_columns(reports_directory: Path) -> None:
    given = tables() | {
        "new_things": [{"thing": "a", "lag_s": 90.0, "kept_bytes": 2_000_000, "good_share": 0.25, "of": [1]}]
    }
    make_report(reports_directory, Period.DAY, DAY, given=given)
    text = section(page(), "new_things")
    for shown in ("New things", "1 min 30 s", "2.0 MB", "25.0%", "good %"):
        assert shown in text
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    assert [column.kind for column in columns_of(report, "new_things")] == [Kind.TEXT, Kind.SPAN, Kind.SIZE, Kind.SHARE]


def test_a_report_that_is_replaced_while_it_is_read_is_read_to_its_end(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    report = report_store.report_of(Period.DAY, DAY)
    make_report(reports_directory, Period.DAY, DAY, given=tables(destinations=3))
    assert report is not None
    assert table(report, "destinations", "", 100, 100).count == 12


# -- files


def test_csv_has_all_rows_and_no_formula(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY, given=tables(destinations=300))
    answer = client_of("viewer").get(f"{URL}destinations.csv")
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="waypost-day-2026-11-18-destinations.csv"'
    read = list(csv.DictReader(io.StringIO(body(answer).decode())))
    assert len(read) == 300
    assert (read[0]["destination"], read[0]["attempts"], read[0]["delay_p99_s"]) == (
        "smtp:domain0.example",
        "60",
        "312.0",
    )
    text = body(client_of("viewer").get(f"{URL}reasons.csv")).decode()
    assert '"\'=cmd|""/c calc""!A1' in text
    assert "\u202e" not in text
    assert body(client_of("viewer").get(f"{URL}recipients.csv")).decode().splitlines()[1].startswith("\"'=2+3@")


def test_parquet_is_the_table_as_it_is(reports_directory: Path) -> None:
    version = make_report(reports_directory, Period.DAY, DAY)
    read = pq.read_table(io.BytesIO(body(client_of("viewer").get(f"{URL}destinations.parquet"))))
    assert read.equals(pq.read_table(version / "destinations" / "part-0.parquet"))


def test_a_file_is_bounded_and_says_so(reports_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_report(reports_directory, Period.DAY, DAY, given=tables(destinations=300))
    monkeypatch.setattr("appliance.reports.downloads._most", lambda: 100)
    lines = body(client_of("viewer").get(f"{URL}destinations.csv")).decode().splitlines()
    assert len(lines) == 1 + 100 + 1
    assert "truncated after 100 rows" in lines[-1]
    data = io.BytesIO(body(client_of("viewer").get(f"{URL}destinations.parquet")))
    assert pq.read_table(data).num_rows == 100
    assert pq.read_metadata(data).metadata[b"waypost.note"] == b"truncated after 100 of 300 rows"


@pytest.mark.parametrize("name", ["nothing", "..", "report", "totals%2f..", "-"])
def test_a_table_there_is_none_of_is_not_found(reports_directory: Path, name: str) -> None:
    make_report(reports_directory, Period.DAY, DAY)
    for end in ("csv", "parquet"):
        assert client_of("viewer").get(f"{URL}{name}.{end}").status_code == 404


def test_rows_are_read_in_pieces(reports_directory: Path) -> None:
    make_report(reports_directory, Period.DAY, DAY, given=tables(destinations=20_000))
    report = report_store.report_of(Period.DAY, DAY)
    assert report is not None
    pieces = list(rows.batches(report, "destinations", ["destination"], 10_000))
    assert len(pieces) > 1
    assert sum(piece.num_rows for piece in pieces) == 10_000


def test_counters_that_are_sums_of_checksums_are_said_in_words() -> None:
    """Their numbers are no number of anything."""
    for what, words in (
        ("checksum", "over all rows"),
        ("routes", "over the destinations and recipient domains of attempts"),
    ):
        said = altered_words({"lane": "journal", "what": what, "exported": 93_807, "found": 5})
        assert said == f"journal: the checksum {words} differs"
