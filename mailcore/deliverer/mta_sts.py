"""The MTA-STS policies of domains (RFC 8461), kept on disk until their max_age is over.

Laws:
- A policy that was fetched is in force until its time is over or another one was fetched: not until a restart, and not until an
  attacker suppresses the TXT record or the web server (RFC 8461 5.1, 10.2).
- The disk holds at most ``kept_max`` policies, memory as many. A file of another user is not believed.
- A fetch that failed is tried again after RETRY_S at the earliest.

Keeps law: sts-policy-outlives-restart (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from mailcore.deliverer.sts_fetch import PolicyFetcher
from mailcore.deliverer.sts_policy import PolicyError, StsPolicy, allows, parse_policy, record_id
from mailcore.frames import NextHop
from mailcore.routing.mx import HostFinder
from mailcore.tls.policy import Policy

__all__ = ["StsPolicies", "refusal"]

RETRY_S = 300.0  # after a failed fetch (RFC 8461 3.3 asks for a limit and names none)
RECORD_S_MIN = 60.0  # a TXT record, or that there is none, is remembered at least this long, and at most an hour
FILE_BYTES_MAX = 256 * 1024
_SUFFIX = ".json"


class _Record(NamedTuple):
    """A domain's TXT record as it is known until a time: its id ("": none), and whether the look-up failed."""

    until: float
    identifier: str
    failed: bool = False


_UNKNOWN = _Record(0.0, "")


class _Nothing(NamedTuple):
    """Why a domain has no policy that is in force, "" if it publishes none; ``fault`` as ``Policy.fault``."""

    why: str = ""
    fault: str = ""


class StsPolicies:
    """Finds the policy of each domain. ``wall`` is the wall clock, ``clock`` that of waits.

    ``not_kept`` is called with the reason for which a policy can't be written to disk.
    """

    def __init__(
        self,
        directory: Path,
        finder: HostFinder,
        fetcher: PolicyFetcher,
        kept_max: int,
        wall: Callable[[], float],
        clock: Callable[[], float],
        not_kept: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._finder = finder
        self._fetcher = fetcher
        self._kept_max = kept_max
        self._wall = wall
        self._clock = clock
        self._not_kept = not_kept
        self._known: dict[str, StsPolicy] = {}
        self._records: dict[str, _Record] = {}  # by domain
        self._failed: dict[str, tuple[float, PolicyError]] = {}  # domain -> until when no fetch is tried, why
        self._asking: dict[str, asyncio.Task[StsPolicy | _Nothing]] = {}

    async def policy_for(self, policy: Policy, next_hop: NextHop) -> Policy:
        """Returns the policy for a next hop under "mta-sts": that level with the hosts allowed, or "may" with the reason."""
        domain = next_hop.host
        if not next_hop.mx:
            return policy.instead("may", "the next hop is a host and not a domain")
        task = self._asking.get(domain)
        if task is None:
            task = self._asking[domain] = asyncio.create_task(self._find(domain))
            task.add_done_callback(lambda _: self._asking.pop(domain, None))
        found = await asyncio.shield(task)  # others wait for it too
        if isinstance(found, _Nothing):
            why = f"{domain} has no policy ({found.why})" if found.why else f"{domain} has no policy"
            return policy.instead("may", why)._replace(fault=found.fault)
        if found.mode == "none":
            return policy.instead("may", f"{domain} has no policy")
        if found.mode == "testing":
            testing = policy.instead("may", f"the policy of {domain} is in testing mode")
            return testing._replace(ca_file=policy.ca_file, hosts=found.hosts)
        return Policy("mta-sts", f"policy of {domain}", ca_file=policy.ca_file, hosts=found.hosts)

    def known(self, domain: str) -> StsPolicy | None:
        """Returns the policy of a domain that was used last; None if it is not in memory."""
        return self._known.get(domain)

    async def _find(self, domain: str) -> StsPolicy | _Nothing:
        found = await self._policy(domain)
        if found is not None:
            return found
        if self._records.get(domain, _UNKNOWN).failed:
            return _Nothing("its TXT record could not be looked up")
        error = self._failed[domain][1] if domain in self._failed else None
        return _Nothing(str(error)[:200], error.result) if error is not None else _Nothing()

    async def _policy(self, domain: str) -> StsPolicy | None:
        now = self._wall()
        kept = self._kept(domain)
        if kept is not None and not kept.holds(now):
            kept = None
        identifier = await self._identifier(domain)
        if not identifier:
            return kept  # without a TXT record a policy that is kept stays in force (RFC 8461 5.1)
        if kept is not None and kept.id == identifier and now < kept.fetched_at + kept.max_age_s / 2:
            return kept
        if domain in self._failed and self._failed[domain][0] > self._clock():
            return kept
        try:
            fetched = parse_policy(await self._fetcher.fetch(domain), domain, identifier, now)
        except PolicyError as error:
            if len(self._failed) >= self._kept_max:
                self._failed.clear()
            self._failed[domain] = self._clock() + RETRY_S, PolicyError(str(error)[:200], error.result)
            return kept
        self._failed.pop(domain, None)
        self._keep(fetched)
        return fetched

    async def _identifier(self, domain: str) -> str:
        known = self._records.get(domain, _UNKNOWN)
        if known.until > self._clock():
            return known.identifier
        texts, ttl_s, failed = await self._finder.texts(f"_mta-sts.{domain}")
        identifier = record_id(texts)
        if not identifier and not failed:
            self._failed.pop(domain, None)  # it publishes no policy any more: none that can't be fetched, either
        if len(self._records) >= self._kept_max:
            self._records.clear()
        remembered_s = ttl_s if failed else max(ttl_s, RECORD_S_MIN)  # without a kept policy mail leaves as under "may"
        self._records[domain] = _Record(self._clock() + remembered_s, identifier, failed)
        return identifier

    # The disk

    def _kept(self, domain: str) -> StsPolicy | None:
        """Returns what is kept of a domain, in memory or on disk; None also for a file that can't be believed."""
        known = self._known.get(domain)
        if known is not None and known.holds(self._wall()):
            return known  # else another process may have fetched a newer one
        try:
            with open(self._directory / (domain + _SUFFIX), "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                found = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=StsPolicy)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return None
        if found.domain != domain:
            return None
        self._remember(found)
        return found

    def _remember(self, policy: StsPolicy) -> None:
        while len(self._known) >= self._kept_max:
            del self._known[next(iter(self._known))]  # it is still on disk
        self._known[policy.domain] = policy

    def _keep(self, policy: StsPolicy) -> None:
        self._remember(policy)
        new = self._directory / f".{policy.domain}.{os.getpid()}"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(policy.domain + _SUFFIX)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(policy))
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._directory / (policy.domain + _SUFFIX))
        except OSError as error:
            self._not_kept(f"{policy.domain}: {self._directory}: {error.strerror}")

    def _make_room(self, name: str) -> None:
        """Deletes the files that were written first, so that with ``name`` there are at most ``kept_max``."""
        found = [entry for entry in os.scandir(self._directory) if entry.name.endswith(_SUFFIX) and entry.name != name]
        if len(found) < self._kept_max:
            return
        found.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
        for entry in found[: len(found) + 1 - self._kept_max]:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def refusal(policy: Policy, host: str) -> str:
    """Returns why an MX host gets no mail under the policy of its domain; "" if it does."""
    return "" if allows(policy.hosts, host) else f"host {host} is not in the MTA-STS {policy.why}"
