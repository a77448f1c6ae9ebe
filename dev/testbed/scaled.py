"""The machines of data-diffusion §4, at a scale of 1:N: nodes with a disk and a link of their own,
and shared storage of eight servers.

Sizes of files and rates are those of the paper divided by N, so a transfer takes as long as there.
Times that do not depend on sizes stay as they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import slow_disk
from testbed import Testbed, TestbedError

# Rates of the paper in Mb/s. Figures 12 and 13: 61.7 Gb/s of reads is 94 % of the ideal of 64
# disks, 22.7 Gb/s of reads and writes is 96 % (bytes read and bytes written count).
DISK_READ, DISK_BOTH = 61_700 / 0.94 / 64, 22_700 / 0.96 / 64
# §4.2: what GPFS tops out at, with its eight servers.
STORAGE_READ, STORAGE_BOTH, SERVERS = 3420, 1123, 8
LINK = 1000  # table 1
HEAD_LINK = "100mbit"  # of the dispatcher, as there; messages do not shrink with the scale
# §4.2: 75 % of the peak with files of 1 MB. So each file costs a server a third of their transfer.
OPEN_MS = 8 / (STORAGE_READ / SERVERS) * 1000 * (1 / 0.75 - 1)
# §4.3: 21 tasks/s that make a folder and a link, and remove them: four changes of a folder.
CHANGE_MS = 1000 / 21 / 4


def write_rate(read: float, both: float) -> float:
    """Rate of writes, if reading and then writing the same bytes has the rate `both`: 2 / both =
    1 / read + 1 / write. For example, 1 / (2 / 1123 - 1 / 3420) = 672.
    """
    return 1 / (2 / both - 1 / read)


@dataclass(frozen=True)
class Machines:
    """The paper's machines divided by `scale`."""

    scale: float

    def link(self) -> str:
        """Rate of a node's link."""
        return f"{LINK / self.scale:.3f}mbit"

    def disk(self) -> list[str]:
        """Options of `slow-disk mount` for a node's own disk."""
        return self._rates(DISK_READ, write_rate(DISK_READ, DISK_BOTH))

    def storage(self) -> list[str]:
        """Options of `slow-disk mount` for the shared storage. Each of its servers serves one
        request at a time.
        """
        write = write_rate(STORAGE_READ, STORAGE_BOTH)
        rates = self._rates(STORAGE_READ / SERVERS, write / SERVERS)
        costs = ["--open-ms", f"{OPEN_MS:.3f}", "--change-ms", f"{CHANGE_MS:.3f}"]
        return [*rates, *costs, "--channels", str(SERVERS)]

    def _rates(self, read: float, write: float) -> list[str]:
        """Options for rates in Mb/s at full scale. Nothing is cached: files of the paper's
        experiments were read for the first time.
        """
        megabytes = [f"{rate / 8 / self.scale:.6f}" for rate in (read, write)]
        words = ["--seek-ms", "0", "--uncached", "--megabytes-per-second", megabytes[0]]
        return [*words, "--write-megabytes-per-second", megabytes[1]]

    def bytes(self, size: int) -> int:
        """Size of a file of this size at full scale."""
        return max(round(size / self.scale), 1)

    def __str__(self) -> str:
        return f"scale 1:{self.scale:g}"


def up(bed: Testbed, nodes: int, machines: Machines) -> None:
    """Creates a testbed with these machines. `head` and the nodes see the shared storage; each node
    has its disk at its folder of the testbed.
    """
    try:
        slow_disk.check_needs()
    except slow_disk.SlowDiskError as error:
        raise TestbedError(str(error)) from None
    bed.up(nodes, machines.link(), "1gbit", head_link=HEAD_LINK, shares=False)
    mounts = [
        (name, bed.shared, bed.mount, machines.storage(), "storage") for name in bed.nodes()[1:]
    ]
    for name in bed.nodes()[2:]:
        own = bed.folder / "nodes" / name
        mounts.append((name, own, own, machines.disk(), f"disk-{name}"))
    mounting = []
    for name, source, mount, costs, disk in mounts:
        # Disks do not wait for processors, and have files of thousands of tasks open.
        first = ["chrt", "-r", "2", "prlimit", "--nofile=16384"]
        command = [*first, slow_disk.program(), "mount", source, mount, *costs]
        words = [*command, "--state", bed.folder / f"{disk}.state"]
        mounting.append(bed.hold(name, words, f"{disk}.log"))
    for (name, *_, disk), process in zip(mounts, mounting):
        if process.stdout is None or process.stdout.readline() != b"ready\n":
            raise TestbedError(
                f"{name}: no {disk}: {(bed.folder / 'log' / f'{disk}.log').read_text()}"
            )
