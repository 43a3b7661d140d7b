"""Copies data through loopback and disk as plainly as it can be done: the rate that a relay of big mail is compared with.

source -> loopback -> one file, synced after each ``COMPANY`` messages -> loopback -> sink. Two threads of one process receive
and send, as a relay does both at the same time; a message is sent when the sync that covers it has ended. There is no
protocol, no name and no envelope. Source and sink run in processes of their own on the same cores.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import socket
import threading
import time
from pathlib import Path

from bench.processes import own_cpu_s
from bench.turns import Run

__all__ = ["copy"]

BLOCK_BYTES = 256 << 10
COMPANY = 20  # messages a sync: as many as sessions of the relay's source wait for one
NAME = "copy"


def _source(port: int, total: int) -> None:
    block = os.urandom(BLOCK_BYTES)
    with socket.create_connection(("127.0.0.1", port)) as sock:
        for at in range(0, total, BLOCK_BYTES):
            sock.sendall(block[: total - at])


def _sink(listener: socket.socket, total: int) -> None:
    sock, _ = listener.accept()
    buffer = bytearray(BLOCK_BYTES)
    with sock:
        while total > 0 and (got := sock.recv_into(buffer)):
            total -= got
        sock.sendall(b"." if total == 0 else b"!")


def _receive(listener: socket.socket, fd: int, size: int, messages: int, synced: queue.SimpleQueue[int]) -> None:
    sock, _ = listener.accept()
    buffer = bytearray(BLOCK_BYTES)
    view, at, covered = memoryview(buffer), 0, 0
    try:
        with sock:
            while at < size * messages and (got := sock.recv_into(buffer)):
                os.pwrite(fd, view[:got], at)
                at += got
                if at - covered >= size * COMPANY or at == size * messages:
                    os.fdatasync(fd)
                    covered = at
                    synced.put(at)
    finally:
        synced.put(-1)


def copy(directory: Path, size: int, messages: int) -> Run:
    """Copies ``messages`` of ``size`` bytes. CPU is that of source, copier and sink together. Raises RuntimeError."""
    context = multiprocessing.get_context("fork")
    path = directory / "copy"
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    arriving, leaving = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    sink = context.Process(target=_sink, args=(leaving, size * messages), daemon=True)
    source = context.Process(target=_source, args=(arriving.getsockname()[1], size * messages), daemon=True)
    synced: queue.SimpleQueue[int] = queue.SimpleQueue()
    cpu = own_cpu_s()
    try:
        sink.start()
        with socket.create_connection(leaving.getsockname()) as out:
            receiving = threading.Thread(target=_receive, args=(arriving, fd, size, messages, synced))
            begun = time.monotonic()
            source.start()
            receiving.start()
            at = 0
            while (end := synced.get()) >= 0:
                while at < end:
                    at += os.sendfile(out.fileno(), fd, at, min(BLOCK_BYTES, end - at))
            if out.recv(1) != b".":
                raise RuntimeError(f"the copy lost data after {at} bytes")
            seconds = time.monotonic() - begun
            receiving.join()
        sink.join()
        source.join()
    finally:
        for process in (source, sink):
            if process.is_alive():
                process.kill()
        arriving.close()
        leaving.close()
        os.close(fd)
        path.unlink()
    return Run(NAME, "", messages, seconds, (own_cpu_s() - cpu) * 1000 / messages, 0.0, 0.0)
