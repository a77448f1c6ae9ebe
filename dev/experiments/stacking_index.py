#!/usr/bin/env python3
"""Experiment: the frames of a survey that show the objects of a list, by `stack index` and `stack
find`, beside ways without an index of one's own.

    dev/experiments/stacking_index.py

Frames of 2048 x 1489 pixels of 0.396 arcsec lie at random on the sky, in five bands, as do the
objects of the list. The files have headers, and holes instead of pixels, as nothing reads these.

- index: `stack index` over all frames
- find: `stack find` with that index; the tasks and the report of what is not found are written
- every frame: `stack --list` of one frame, which tries all objects of the list; the median of a few
  frames, times the number of frames
- astropy-healpix: cells of the frames' circles and of the objects in Python, joined by numpy. It
  finds candidates, which are several times as many, without a look at frames or bands, from
  positions that are in memory already

Prints seconds. What `find` finds must be what a few frames find themselves, object by object.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testbed"))
from table import show

PROJECT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, DEGREES = 2048, 1489, 0.396 / 3600
BANDS = "ugriz"
LOOKED_AT = 5  # frames that try the whole list


def stack(folder: Path, *words: object) -> tuple[float, str]:
    """Runs `stack`. Returns its seconds and its output."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target")
    beside = Path(os.environ["EYAS_BIN"]).parent if "EYAS_BIN" in os.environ else target / "release"
    started = time.monotonic()
    done = subprocess.run(
        [(beside / "stack").resolve(), *map(str, words)],
        check=True,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    return time.monotonic() - started, done.stdout


def place(chance: random.Random) -> tuple[float, float]:
    """A place anywhere on the sky."""
    return chance.uniform(0, 360), math.degrees(math.asin(chance.uniform(-1, 1)))


def write_frame(path: Path, band: str, middle: tuple[float, float], turn: float) -> None:
    """A frame without pixels."""
    sin, cos = DEGREES * math.sin(turn), DEGREES * math.cos(turn)
    numbers = {"BITPIX": 16, "NAXIS": 2, "NAXIS1": WIDTH, "NAXIS2": HEIGHT, "SKY": 0, "CAL": 1}
    numbers |= {"CRPIX1": (WIDTH + 1) / 2, "CRPIX2": (HEIGHT + 1) / 2}
    numbers |= {"CRVAL1": middle[0], "CRVAL2": middle[1]}
    numbers |= {"CD1_1": -cos, "CD1_2": sin, "CD2_1": sin, "CD2_2": cos}
    cards = ["SIMPLE  = T", *(f"{name:8}= {value}" for name, value in numbers.items())]
    cards += [f"FILTER  = '{band}'", "CTYPE1  = 'RA---TAN'", "CTYPE2  = 'DEC--TAN'", "END"]
    header = "".join(f"{card:80}" for card in cards).encode()
    with path.open("wb") as file:
        file.write(header.ljust(2880))
        file.truncate(2880 + -(-2 * WIDTH * HEIGHT // 2880) * 2880)


def write(folder: Path, frames: int, objects: int, seed: int) -> list[tuple[float, float]]:
    """Writes frames and the list. Returns the middles of the frames."""
    chance = random.Random(seed)
    (folder / "frames").mkdir()
    middles = [place(chance) for _ in range(frames)]
    for number, middle in enumerate(middles):
        path = folder / f"frames/{number:06}.fits"
        write_frame(path, BANDS[number % 5], middle, chance.uniform(0, math.tau))
    with (folder / "list.csv").open("w", encoding="utf-8") as file:
        file.write("ra,dec,band,name\n")
        for number in range(objects):
            ra, dec = place(chance)
            file.write(f"{ra:.6f},{dec:.6f},{BANDS[chance.randrange(5)]},o{number}\n")
    return middles


def every_frame(folder: Path, frames: int) -> tuple[float, int]:
    """Seconds that all frames would take to try the whole list, and the regions of a few of them,
    which must be those of the tasks.
    """
    with (folder / "tasks.csv").open(encoding="utf-8") as file:
        tasks = [row[0] for row in csv.reader(file)]
    # Frames with objects, so that there is something to compare.
    names = list(dict.fromkeys(tasks))[:LOOKED_AT] or ["frames/000000.fits"]
    seconds, regions = [], 0
    for name in names:
        took, said = stack(folder, "--list", "list.csv", name)
        seconds.append(took)
        stacked = int(said.split("stacked=")[1].split("\t")[0])
        if stacked != tasks.count(name):
            raise SystemExit(f"{name}: {stacked} regions, and {tasks.count(name)} tasks")
        regions += stacked
    return statistics.median(seconds) * frames, regions


def by_astropy(folder: Path, middles: list[tuple[float, float]]) -> tuple[float, float, int] | None:
    """Seconds for the cells of the frames and for those of the objects, and the candidates; none
    without the packages.
    """
    try:
        import numpy as np
        from astropy import units
        from astropy_healpix import HEALPix
    except ImportError:
        return None
    table = np.loadtxt(folder / "list.csv", delimiter=",", skiprows=1, usecols=(0, 1), ndmin=2)
    grid = HEALPix(nside=512, order="nested")
    radius = math.hypot(WIDTH, HEIGHT) / 2 * DEGREES * units.deg
    started = time.monotonic()
    around = [
        grid.cone_search_lonlat(ra * units.deg, dec * units.deg, radius=radius)
        for ra, dec in middles
    ]
    cells = np.concatenate(around)
    cells.sort()
    of_frames = time.monotonic() - started
    started = time.monotonic()
    own = grid.lonlat_to_healpix(table[:, 0] * units.deg, table[:, 1] * units.deg)
    pairs = np.searchsorted(cells, own, side="right") - np.searchsorted(cells, own, side="left")
    return of_frames, time.monotonic() - started, int(pairs.sum())


def main() -> int:
    """Reads the arguments and runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="tests that it runs")
    args = parser.parse_args()
    if args.tiny:
        args.frames, args.objects = 1000, 60_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        middles = write(folder, args.frames, args.objects, args.seed)
        indexing, _ = stack(folder, "index", "frames", "--out", "index")
        words = ["find", "--index", "index", "--list", "list.csv", "--out-tasks", "tasks.csv"]
        finding, said = stack(folder, *words, "--report", "missing.csv")
        looking, regions = every_frame(folder, args.frames)
        peer = by_astropy(folder, middles)
        size = (folder / "index").stat().st_size / 1e6
    rows: list[list[object]] = [
        ["index", indexing, f"{size:.1f} MB"],
        ["find", finding, said.strip().replace("\t", " ")],
        ["every frame", looking, f"estimated by {LOOKED_AT} frames, whose {regions} regions agree"],
    ]
    if peer:
        rows.append(["astropy-healpix: frames", peer[0], "circles"])
        rows.append(["astropy-healpix: objects", peer[1], f"{peer[2]} candidates"])
    title = f"{args.objects} objects, {args.frames} frames: seconds"
    show(title, ["", "s", ""], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
