"""The virtual address that docs/nodes.md shows: keepalived with its lines, and clients that know that address only."""

from __future__ import annotations

import asyncio
import shutil
import textwrap
import time

import pytest

from mailcore.lab.lab import Lab
from tests.end_to_end.judge import judged
from tests.eventually import eventually
from tests.ledger.client import LoadClient
from tests.ledger.corpus import Corpus
from tests.ledger.ledger import Ledger
from tests.nodes.machine_node import ROOT, MachineNode
from tests.nodes.machines import DATABASE, MAIL, Machine
from tests.nodes.patroni_site import HOP, MESSAGES, WHY_NOT, Site, check, first_of, running

ADDRESS, PORT = "10.78.2.25", 25
LACKING = WHY_NOT or ("" if shutil.which("keepalived") else "missing: keepalived (Debian's package keepalived)")
# Without root or a program it is left out; ./test --long installs what it needs.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800), pytest.mark.skipif(bool(LACKING), reason=LACKING)]


def lines_of_the_page() -> str:
    """The example of docs/nodes.md, with the interface and the address of this network."""
    page = (ROOT / "docs" / "nodes.md").read_text()
    example = textwrap.dedent(page[page.index("      global_defs {") :].partition("\n\n")[0])
    for word, ours in (("eth0", MAIL), ("192.0.2.25/24", f"{ADDRESS}/24")):
        assert example.count(word) == 1
        example = example.replace(word, ours)
    return example + "\n"


def keep(machine: Machine) -> None:
    """Starts keepalived there."""
    config = machine.directory / "keepalived.conf"
    config.write_text(lines_of_the_page())
    config.chmod(0o644)
    words = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file", str(config)]
    for option in ("pid", "vrrp_pid"):
        words += [f"--{option}", str(machine.directory / option)]
    machine.start(words, log="keepalived.log")


async def greeting() -> str:
    """Returns the first line that a client of the virtual address reads; "" when there is no answer."""
    try:
        async with asyncio.timeout(3):
            reader, writer = await asyncio.open_connection(ADDRESS, PORT)
            try:
                return (await reader.readline()).decode().strip()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return ""


def holders(nodes: list[MachineNode]) -> list[str]:
    """The nodes that have the address."""
    return [node.name for node in nodes if f" {ADDRESS}/" in node.machine.said("ip", "-o", "-4", "address")]


async def until_at(nodes: list[MachineNode], node: MachineNode) -> None:
    async def there() -> bool:
        return holders(nodes) == [node.name] and (await greeting()).startswith("220")

    await eventually(there, f"the virtual address at {node.name}", look_every_s=0.1)


async def test_clients_of_a_virtual_address_find_the_owner_when_a_node_is_destroyed_or_cut_off(site: Site) -> None:
    ledger = Ledger()

    def loading(name: str, seed: int) -> asyncio.Task[None]:
        client = LoadClient((ADDRESS, PORT), ledger, name=name, timeout_s=10.0, pause_s=0.2)
        return asyncio.create_task(client.send(Corpus(40 * MESSAGES, seed=seed)))

    async with Lab([HOP]) as lab, running(site, lab, 2, port=PORT) as nodes:
        a, b = nodes
        for node in nodes:
            keep(node.machine)
        await until_at(nodes, a)
        load = loading("k-", 1)
        await eventually(lambda: len(ledger.acknowledged) > MESSAGES, "some mail")
        at = time.time()
        await asyncio.to_thread(a.destroy)
        a.machine.said(
            "ip", "address", "del", f"{ADDRESS}/24", "dev", MAIL
        )  # its kernel lives, and would go on answering
        destroyed = await first_of(lab, b.address[0], at) - at
        await until_at(nodes, b)
        followed = time.time() - at
        await load
        a.launch()
        keep(a.machine)
        await a.until(a.is_spare, "a to be the spare")
        await until_at(nodes, b)

        load = loading("c-", 2)
        taken = len(ledger.acknowledged)
        await eventually(lambda: len(ledger.acknowledged) > taken + MESSAGES, "some mail")
        at = time.time()
        b.machine.cut(DATABASE)
        cut = await first_of(lab, a.address[0], at) - at
        await until_at(nodes, a)
        moved = time.time() - at
        b.machine.mend(DATABASE)
        await load
        comparison = await judged(a, ledger, lab)
    print(f"\ndestroyed: first delivery after {destroyed:.1f} s, the address at the other node after {followed:.1f} s")
    print(f"cut off from the database: {cut:.1f} s and {moved:.1f} s")
    assert len(ledger.acknowledged) == 80 * MESSAGES
    check(comparison, ledger, 2, "a virtual address")
