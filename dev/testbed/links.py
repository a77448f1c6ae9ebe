"""Links of the testbed: a bridge in the network namespace of `switch`, and a pair of virtual
interfaces for each node.

Outgoing traffic of a node is shaped at its own end, incoming traffic at the bridge's end, each by a
token bucket of the kernel (HTB). On the store's link each node has a class of its own with a
guaranteed share, and borrows what others leave. With a single queue, few connections would dominate
for seconds.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

NET = "198.18.0"  # set aside for benchmarks of networks (RFC 2544)
STORE, HEAD, FIRST_NODE = 1, 2, 11
# Burst: 2 ms of traffic, but at least the largest packet of the kernel.
BURST_S, LEAST_BURST_BYTES = 0.002, 66_000
UNITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


class LinkError(Exception):
    """A link could not be created."""


def bits_per_s(text: str) -> int:
    """Parses a rate in the notation of `tc`, such as 100mbit."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)", text)
    if found is None or float(found[1]) == 0:
        raise LinkError(f"`{text}` is not a rate; write it as 500kbit, 100mbit or 1gbit")
    return int(float(found[1]) * UNITS[found[2]])


def addresses(nodes: int) -> dict[str, str]:
    """Every node's address by its name."""
    last = {
        "store": STORE,
        "head": HEAD,
        **{f"n{number + 1}": FIRST_NODE + number for number in range(nodes)},
    }
    return {name: f"{NET}.{byte}" for name, byte in last.items()}


def connect(
    holder: Callable[[str], int],
    addresses: dict[str, str],
    rate: int,
    store_rate: int,
    head_rate: int,
) -> None:
    """Connects all nodes, whose namespaces these processes hold."""
    switch = holder("switch")
    inside(switch, ["ip link add name br0 type bridge", "ip link set br0 up"])
    for name, address in addresses.items():
        node = holder(name)
        pair = f"ip link add v-{name} netns {switch} type veth peer name eth0 netns {node}"
        run(pair.split())
        if name == "store":
            there = fair("eth0", store_rate, rate, addresses, "dst")
            back = fair("v-store", store_rate, rate, addresses, "src")
        else:
            own_rate = head_rate if name == "head" else rate
            there, back = plain("eth0", own_rate), plain(f"v-{name}", own_rate)
        own = ["ip link set lo up", f"ip addr add {address}/24 dev eth0", "ip link set eth0 up"]
        inside(
            node, ["sysctl -qw net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true", *own, *there]
        )
        inside(switch, [f"ip link set v-{name} master br0 up", *back])


def shape(rate: int, ceiling: int | None = None) -> str:
    """Arguments of a class with this rate, which may borrow up to the ceiling."""
    burst = max(int(rate / 8 * BURST_S), LEAST_BURST_BYTES)
    most = ceiling or rate
    most_burst = max(int(most / 8 * BURST_S), LEAST_BURST_BYTES)
    return f"htb rate {rate}bit ceil {most}bit burst {burst} cburst {most_burst} quantum 60000"


def plain(end: str, rate: int) -> list[str]:
    """One class for all traffic that leaves by this end."""
    root = f"tc qdisc add dev {end} root handle 1: htb default 10"
    return [root, f"tc class add dev {end} parent 1: classid 1:10 {shape(rate)}"]


def fair(end: str, rate: int, node_rate: int, addresses: dict[str, str], way: str) -> list[str]:
    """A class for each node at the other side, matched by an address of the packet (`src` or
    `dst`).
    """
    others = {name: address for name, address in addresses.items() if name != "store"}
    share = rate // len(others)
    commands = [f"tc qdisc add dev {end} root handle 1: htb default 2"]
    commands.append(f"tc class add dev {end} parent 1: classid 1:1 {shape(rate)}")
    for address in others.values():
        number = f"{int(address.rsplit('.', 1)[1]):x}"
        match = f"protocol ip prio 1 u32 match ip {way} {address}/32 flowid 1:{number}"
        commands += [
            (
                f"tc class add dev {end} parent 1:1 classid 1:{number} "
                f"{shape(share, min(rate, node_rate))}"
            ),
            f"tc qdisc add dev {end} parent 1:{number} pfifo limit 300",
            f"tc filter add dev {end} parent 1: {match}",
        ]
    return commands


def inside(holder: int, commands: list[str]) -> None:
    """Runs commands in the network of a namespace."""
    script = "set -e\n" + "\n".join(commands)
    run(["nsenter", f"--target={holder}", "--net", "--mount", "sh", "-c", script])


def run(words: list[str]) -> None:
    """Runs a command that prints nothing unless it fails."""
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise LinkError(
            f"`{words[-1] if words[-2] == '-c' else ' '.join(words)}`: {done.stderr.strip()}"
        )


def counted(holder: int, column: int) -> int:
    """A counter of a node's link; columns as in /proc/net/dev."""
    for line in Path(f"/proc/{holder}/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "eth0":
            return int(counters.split()[column])
    raise LinkError("the node has no link")
