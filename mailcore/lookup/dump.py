"""Reads every record of a segment, a lane or a whole queue directory, with its decoded body, for ``waypost log dump``.

It reads and changes nothing, and needs no daemon: marks, damage and headers are shown as they are on the disk, also above
the ends that restart positions record. Byte layouts are in ``mailcore/log/FORMAT.md``.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import enum
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from mailcore.envelope import DataPlace, Envelope, Origin, Status
from mailcore.log.disk import Disk
from mailcore.log.positions import PositionsDamaged, PositionsTooNew, read_positions
from mailcore.log.reader import LaneReader
from mailcore.log.record import GARBAGE, HEADER_BYTES, RETAINED, Record, RecordType
from mailcore.log.segment import (
    FIRST_RECORD,
    Damage,
    Segment,
    SegmentDamaged,
    base_of,
    name_of,
    retired_base_of,
    retired_name_of,
)
from mailcore.queue.records import (
    decode_administrative,
    decode_delivery,
    decode_envelope,
    decode_finish,
    decode_passed,
    decode_recipients,
    decode_refused,
    decode_replaced,
    decode_start,
    inline_data_at,
)

__all__ = ["add_options", "items", "line_of"]

_DECODERS: Mapping[int, Callable[[bytes], Any]] = {
    RecordType.ENVELOPE: decode_envelope,
    RecordType.RECIPIENTS: decode_recipients,
    RecordType.START: decode_start,
    RecordType.DELIVERY: decode_delivery,
    RecordType.REPLACED: decode_replaced,
    RecordType.FINISH: decode_finish,
    RecordType.REFUSED: decode_refused,
    RecordType.ADMINISTRATIVE: decode_administrative,
    RecordType.PASSED: decode_passed,
}
_TYPES = {type_.name.lower(): type_ for type_ in RecordType}
_MARKS = {RETAINED: "retained", GARBAGE: "garbage"}  # any other value counts as live


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a dump to ``parser``."""
    parser.add_argument("--lane", metavar="LANE", help="of a queue directory: this lane only")
    parser.add_argument("--from", dest="start", type=int, default=0, metavar="OFFSET", help="lane offset to begin at")
    parser.add_argument("--to", dest="end", type=int, metavar="OFFSET", help="lane offset to stop in front of")
    parser.add_argument(
        "--type", choices=sorted(_TYPES), action="append", help="records of this type only; may be repeated"
    )
    parser.add_argument("--data", action="store_true", help="inline message data, too")


def items(disk: Disk, path: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields what is in a segment (.seg, or .data if it is retired), a lane's directory, or a queue directory.

    Raises OSError, SegmentTooNew.

    ``arguments``: the options of ``add_options``. An item has a ``kind``: positions, segment, record or damage.
    """
    path = path.rstrip("/") or "/"
    if not disk.is_directory(path):
        yield from _segment(disk, path, os.path.basename(os.path.dirname(os.path.abspath(path))), arguments, None)
        return
    names = disk.list(path)
    if any(base_of(name) is not None or retired_base_of(name) is not None for name in names):
        yield from _lane(disk, path, arguments)
        return
    lanes = [name for name in names if disk.is_directory(os.path.join(path, name))]
    if arguments.lane is not None:
        if arguments.lane not in lanes:
            raise FileNotFoundError(
                2, f"there is no lane {arguments.lane!r}; there are {', '.join(lanes) or 'none'}", path
            )
        lanes = [arguments.lane]
    elif lanes:
        yield _positions(disk, path)
    elif not names:
        raise FileNotFoundError(2, "there is no log here", path)
    for lane in lanes:
        yield from _lane(disk, os.path.join(path, lane), arguments)


def _positions(disk: Disk, path: str) -> dict[str, Any]:
    try:
        positions = read_positions(disk, path)
    except (PositionsDamaged, PositionsTooNew) as error:
        return {"kind": "damage", "path": path, "offset": 0, "end": 0, "what": str(error)}
    return {"kind": "positions", "path": path, "positions": None if positions is None else _plain(positions)}


def _lane(disk: Disk, path: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the items of a lane's retired segments, then those of its segments."""
    lane = os.path.basename(path)
    for base in [base for base in map(retired_base_of, disk.list(path)) if base is not None]:
        if arguments.end is None or base < arguments.end:
            with contextlib.suppress(FileNotFoundError):  # nothing in it is needed any more
                yield from _segment(disk, os.path.join(path, retired_name_of(base)), lane, arguments, None)
    reader = LaneReader(disk, path, lambda damage: None)
    try:
        bases = reader.bases
        for base, following in zip(bases, [*bases, None][1:], strict=True):
            if following is not None and following <= arguments.start:
                continue
            if arguments.end is not None and base >= arguments.end:
                return
            end = None if base == bases[-1] else reader.end_of(base, None)
            yield from _segment(disk, os.path.join(path, name_of(base)), reader.lane, arguments, end)
    finally:
        reader.close()


def _segment(
    disk: Disk, path: str, lane: str, arguments: argparse.Namespace, end: int | None
) -> Iterator[dict[str, Any]]:
    """Yields the items of a segment. Records after ``end``, where later segments say that it ends, are shown as cut off."""
    try:
        segment = Segment(disk, path)
    except SegmentDamaged as error:
        size = disk.size_of(path)
        name = os.path.basename(path)
        base = base_of(name) or retired_base_of(name) or 0
        yield {"kind": "damage", "path": path, "lane": lane, "offset": base, "end": base + size, "what": str(error)}
        return
    try:
        header, file_end = segment.header, segment.file_end
        yield {
            "kind": "segment",
            "path": path,
            "lane": lane,
            "base": header.base,
            "previous_end": header.previous_end,
            "created": header.created,
            "end": file_end if end is None else end,
            "bytes": file_end - header.base,
        }
        damage: list[Damage] = []
        stop = file_end if arguments.end is None else min(file_end, arguments.end)
        wanted = {_TYPES[name] for name in arguments.type or ()}
        for record in segment.records(max(arguments.start, header.base + FIRST_RECORD), file_end, damage.append):
            yield from _damages(damage, lane)
            if record.offset >= stop:
                return
            if not wanted or record.type in wanted:
                yield _record(record, lane, end is not None and record.offset >= end, arguments.data)
        yield from _damages(damage, lane)
    finally:
        segment.close()


def _damages(damage: list[Damage], lane: str) -> Iterator[dict[str, Any]]:
    for one in damage:
        yield {"kind": "damage", "path": one.path, "lane": lane, "offset": one.offset, "end": one.end, "what": one.what}
    damage.clear()


def _record(record: Record, lane: str, cut_off: bool, with_data: bool) -> dict[str, Any]:
    item: dict[str, Any] = {
        "kind": "record",
        "lane": lane,
        "offset": record.offset,
        "type": RecordType(record.type).name if record.type in _DECODERS else str(record.type),
        "mark": _MARKS.get(record.mark, "live"),
        "bytes": len(record.body),
    }
    if cut_off:
        item["cut_off"] = True  # behind the end that a later segment states: written, and never reported durable
    decoder = _DECODERS.get(record.type)
    if decoder is None:
        item["raw"] = base64.b64encode(record.body).decode()
        return item
    try:
        body = decoder(record.body)
    except (msgspec.MsgspecError, struct.error) as error:
        item["undecodable"] = str(error)
        item["raw"] = base64.b64encode(record.body).decode()
        return item
    item["body"] = _plain(body)
    if isinstance(body, Envelope) and body.data is DataPlace.INLINE:
        data = record.body[inline_data_at(-HEADER_BYTES, record.body) :]
        item["data_bytes"] = len(data)
        if with_data:
            item["data"] = data.decode("latin-1")  # every byte a character: what is printed can be turned back
    return item


def _plain(value: Any) -> Any:
    """Structs as objects with field names, enums by name: for people and for JSON."""
    if isinstance(value, Origin | Status | DataPlace):
        return value.name.lower()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value


def line_of(item: dict[str, Any]) -> str:
    """Formats an item for people."""
    kind = item["kind"]
    if kind == "positions":
        return f"restart positions {json.dumps(item['positions'])}"
    if kind == "segment":
        return (
            f"segment {item['path']}: {item['bytes']} bytes, records end at {item['end']}, "
            f"the one before ends at {item['previous_end']}"
        )
    if kind == "damage":
        return f"DAMAGE {item['path']}: {item['offset']} to {item['end']}: {item['what']}"
    what = json.dumps(item.get("body", item.get("undecodable", item.get("raw"))))
    cut = " (cut off)" if item.get("cut_off") else ""
    line = f"{item['lane']}:{item['offset']} {item['type']} {item['mark']}{cut} {item['bytes']} bytes {what}"
    if "data" in item:
        line += " data " + json.dumps(item["data"])
    return line
