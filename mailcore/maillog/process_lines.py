"""The lines of the mail log about processes. "warning" and "fatal" are words that pflogsumm gathers."""

from __future__ import annotations

from collections.abc import Sequence

from mailcore.counted import counted
from mailcore.maillog.lines import Lines
from mailcore.maillog.text import free, seconds, word

__all__ = ["ProcessLines"]


KEYS_LOGGED = 20  # of a changed configuration


class ProcessLines(Lines):
    """A part of ``MailLog``."""

    def started(self, process: str, pid: int | str) -> None:
        """Logs that a process was started. ``process``: "receiver.0"."""
        self._line("master", f"process {word(process)} started, pid {int(pid)}")
        self._object("started", process=process, child_pid=int(pid))

    def start_refused(self, why: str) -> None:
        """Logs that nothing was started: a disk is missing or is another Waypost's."""
        self._line("master", f"fatal: not started: {free(why)}")
        self._object("start_refused", why=why)

    def shard_waits(self, why: str) -> None:
        """Logs why no process of a shard starts yet."""
        self._warning("master", f"shard: {free(why)}")
        self._object("shard_waits", why=why)

    def settings_taken(self, words: str) -> None:
        """Logs a version of settings or users of all nodes that this node has taken over, or given."""
        self._line("master", f"settings: {free(words)}")
        self._object("settings_taken", words=words)

    def settings_not_taken(self, why: str) -> None:
        """Logs why this node has other settings or users than all nodes."""
        self._warning("master", f"settings: {free(why)}")
        self._object("settings_not_taken", why=why)

    def shard_owned(self, shard: str, epoch: int, seconds_taken: float) -> None:
        """Logs that a shard is ours and its files are here."""
        self._line("master", f"shard {word(shard)} is ours: epoch {int(epoch)}, after {seconds_taken:.1f} s")
        self._object("shard_owned", shard=shard, epoch=int(epoch), seconds=round(seconds_taken, 3))

    def adopted(self, name: str, directory: str, who: str) -> None:
        """Logs that an operator made a directory one of this home (``waypost identity adopt``)."""
        self._line("master", f"identity: {word(directory)} is the {word(name)} directory by order of {free(who)}")
        self._object("adopted", name=name, directory=directory, who=who)

    def recovered(self, messages: int, seconds_taken: float, held: str = "") -> None:
        """Logs a recovery: how many messages were being worked on. ``held``: why a queue from a backup is on hold."""
        self._line("qmgr", f"recovered: {counted(messages, 'message')} in {seconds(seconds_taken)} s")
        self._object("recovered", messages=messages, seconds=seconds_taken, **({"held": held} if held else {}))
        if held:
            self._warning("qmgr", f"all mail that was in this queue is on hold: {free(held)}")

    def child_ended(self, process: str, pid: int, how: str) -> None:
        """Logs that a process ended. ``how``: "exit status 1", "signal 9"."""
        self._warning("master", f"process {word(process)} pid {pid} ended: {free(how)}; restarting it")
        self._object("child_ended", process=process, child_pid=pid, how=how)

    def reload_began(self, keys: Sequence[str], roles: Sequence[str]) -> None:
        """Logs that a changed configuration file is being brought into force."""
        some = ", ".join(map(free, keys[:KEYS_LOGGED])) + (", ..." if len(keys) > KEYS_LOGGED else "")
        self._line("master", f"reload: {some or 'nothing changed'}; restarting {', '.join(roles) or 'nothing'}")
        self._object("reload_began", keys=list(keys[:KEYS_LOGGED]), keys_count=len(keys), restarting=list(roles))

    def reload_ended(self, seconds: float, killed: Sequence[str], not_begun: Sequence[str]) -> None:
        """Logs that the configuration is in force. ``killed``: processes that were broken off; ``not_begun``: do not work."""
        more = f"; killed: {', '.join(killed)}" if killed else ""
        if not_begun:
            self._warning("master", f"reload: not working yet: {', '.join(not_begun)}{more}")
        else:
            self._line("master", f"reload: done in {seconds:.1f} s{more}")
        self._object("reload_ended", seconds=round(seconds, 3), killed=list(killed), not_begun=list(not_begun))

    def reload_refused(self, why: Sequence[str]) -> None:
        """Logs why a changed configuration file is not in force."""
        for each in why[:KEYS_LOGGED]:
            self._warning("master", f"reload refused: {free(each)}; the settings before stay in force")
        self._object("reload_refused", why=list(why[:KEYS_LOGGED]))

    def failed(self, process: str, error: str) -> None:
        """Logs why a process ends itself."""
        self._line("master", f"fatal: process {word(process)}: {free(error)}")
        self._object("failed", process=process, error=error)
