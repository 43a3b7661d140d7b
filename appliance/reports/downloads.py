"""A table as a file: CSV for spreadsheets, harmless there, and Parquet as it is; no more rows than ``download_rows_max``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from django.http import FileResponse, HttpResponse, StreamingHttpResponse

from appliance.common.csv import CONTENT_TYPE, line
from appliance.common.current_settings import current_settings
from appliance.reports import rows
from appliance.reports.report_store import Report
from appliance.reports.rows import Unreadable
from appliance.reports.tables import columns_of, plain_value
from mailcore.counted import counted

__all__ = ["csv", "parquet"]


def csv(report: Report, table: str) -> HttpResponse:
    """Returns the columns of the page, all rows. Raises Unreadable."""
    names = [column.name for column in columns_of(report, table)]
    response = StreamingHttpResponse(_lines(report, table, names), content_type=CONTENT_TYPE)
    response["Content-Disposition"] = f'attachment; filename="{_name(report, table)}.csv"'
    return cast(HttpResponse, response)  # the decorators' word for any response


def _lines(report: Report, table: str, names: list[str]) -> Iterator[str]:
    most = _most()
    yield line(names)
    try:
        for batch in rows.batches(report, table, names, most):
            columns = [[plain_value(value) for value in batch.column(name).to_pylist()] for name in names]
            yield "".join(line(row) for row in zip(*columns, strict=True))
        if rows.count(report, table) > most:
            yield line([f"note: truncated after {counted(most, 'row')} (download_rows_max)"])
    except Unreadable as error:
        yield line([f"note: truncated: {error}"])


def parquet(report: Report, table: str) -> HttpResponse:
    """Returns all columns of a table in one Parquet file. Raises Unreadable."""
    most = _most()
    schema = rows.schema(report, table)
    kept = tempfile.TemporaryFile()  # noqa: SIM115  # the response closes it
    with pq.ParquetWriter(kept, schema) as writer:
        for batch in rows.batches(report, table, schema.names, most):
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        if (count := rows.count(report, table)) > most:
            writer.add_key_value_metadata({"waypost.note": f"truncated after {most} of {count} rows"})
    kept.seek(0)
    name = f"{_name(report, table)}.parquet"
    return cast(
        HttpResponse,
        FileResponse(kept, as_attachment=True, filename=name, content_type="application/vnd.apache.parquet"),
    )


def _most() -> int:
    return int(current_settings().reports.download_rows_max)


def _name(report: Report, table: str) -> str:
    return f"waypost-{report.period.directory(report.start).replace('=', '-')}-{table}"
