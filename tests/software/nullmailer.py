"""Debian's nullmailer, which cannot be installed beside Postfix: unpacked, with a queue and a configuration of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from tests.software.programs import run, unpacked

__all__ = ["Nullmailer", "nullmailer"]


class Nullmailer:
    """``root`` stands for the places that are compiled in: it is the NULLMAILER_TEST_PREFIX of nullmailer's own tests."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def environment(self) -> dict[str, str]:
        return {"NULLMAILER_TEST_PREFIX": str(self.root)}

    @property
    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    def kept(self, name: str = "queue") -> list[Path]:
        """The messages in a directory of the queue: "queue", or "failed", those that a server has refused for good."""
        return list((self.root / "queue" / name).iterdir())

    async def inject(self, *arguments: str, message: bytes) -> None:
        """Hands a message in as a local user does."""
        program = self.root / "bin" / "nullmailer-inject"
        await run(program, *arguments, stdin=message, environment=self.environment)


@contextlib.asynccontextmanager
async def nullmailer(directory: Path, remote: str) -> AsyncIterator[Nullmailer]:
    """Its queue runner is at work; ``remote`` is the line of its file ``remotes``. A failed delivery is tried every second."""
    usr = unpacked(directory, "nullmailer") / "usr"
    root = directory / "nullmailer"
    for name in ("conf", "queue/queue", "queue/tmp", "queue/failed"):
        (root / name).mkdir(parents=True)
    for name, place in (("sbin", "sbin"), ("bin", "bin"), ("protocols", "lib/nullmailer")):
        (root / name).symlink_to(usr / place)
    (usr / "sbin" / "nullmailer-queue").chmod(0o755)  # with setuid, it would look for its queue below /var
    os.mkfifo(root / "queue" / "trigger")
    (root / "mailname").write_text("client.example\n")
    for name, value in (("remotes", remote), ("pausetime", "1"), ("maxpause", "1")):
        (root / "conf" / name).write_text(f"{value}\n")
    made = Nullmailer(root)
    with (root / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            root / "sbin" / "nullmailer-send", stdout=log, stderr=log, env={**os.environ, **made.environment}
        )
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
