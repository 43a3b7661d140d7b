"""The files of a report's tables: written, read, and looked at whether they can be."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet

__all__ = ["UNREADABLE", "damaged", "read_table", "write_table"]

UNREADABLE = (OSError, ValueError, pyarrow.ArrowException)


def read_table(directory: Path) -> pyarrow.Table | None:
    """Reads a table of a report; returns None if it has no files. Raises one of UNREADABLE."""
    files = sorted(directory.glob("*.parquet"))
    return (
        pyarrow.concat_tables([pyarrow.parquet.read_table(file, page_checksum_verification=True) for file in files])
        if files
        else None
    )


def write_table(directory: Path, table: pyarrow.Table) -> None:
    """Writes a table as one Parquet file into a new directory."""
    directory.mkdir()
    pyarrow.parquet.write_table(table, directory / "part-0.parquet", compression="zstd", write_page_checksum=True)


def damaged(version: Path) -> str:
    """Returns the first file of this version whose footer cannot be read, with the reason; "" if all can be read."""
    for path in sorted(version.glob("*/*.parquet")):
        try:
            pyarrow.parquet.read_metadata(path)
        except UNREADABLE as error:
            return f"{path.parent.name}/{path.name}: {' '.join(str(error).split())}"[:300]
    return ""
