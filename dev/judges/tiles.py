#!/usr/bin/env python3
"""Writes compressed images of many kinds with astropy and cfitsio, and beside each the pixels that
they read from it.

    dev/judges/tiles.py FOLDER [SEED]

`dev/apps/stacking/tests/tiles` was made by it; `tiles.rs` beside it compares. `dev/judges/tiles.sh`
installs astropy and fitsio, and runs both.
"""

from __future__ import annotations

import gzip
import sys
import warnings
from pathlib import Path
from typing import Any

import fitsio
import numpy as np
from astropy.io import fits

WIDTH, HEIGHT = 37, 29

Case = tuple[np.ndarray, dict[str, Any], dict[str, Any]]


def cases(seed: int) -> dict[str, Case]:
    """Images, the options of their compression, and cards of their headers."""
    random = np.random.default_rng(seed)
    shape = (HEIGHT, WIDTH)
    smooth = 900 + 40 * np.sin(np.arange(WIDTH) / 5) + 3 * np.arange(HEIGHT)[:, None]
    counts = np.rint(smooth + random.normal(0, 4, shape)).astype(np.int16)
    wild = random.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)
    wild[5:15] = 7
    holes = counts.copy()
    holes[3:6, 7:20] = -32768
    mask = np.zeros(shape, np.int32)
    mask[4:20, 5:30] = random.integers(0, 3, (16, 25)) * 5000
    mask[8, :] = 77
    flux = (smooth / 7 + random.normal(0, 0.5, shape)).astype(np.float32)
    gaps = flux.copy()
    gaps[2:9, 30:] = np.nan
    gaps[10:14] = 0
    steps = flux.copy()
    steps[4] = 3.25
    steps[9, ::2] = 1e30
    large = random.normal(50, 2, (90, 140)).astype(np.float32)
    rice, level = {"compression_type": "RICE_1"}, {"quantize_level": 8.0}
    dither = {"dither_seed": 9973}
    return {
        "rice_short": (counts, rice, {}),
        "rice_tiles": (counts, rice | {"tile_shape": (7, 10)}, {}),
        "rice_byte": ((counts % 251).astype(np.uint8), rice, {}),
        "rice_int": (wild, rice, {}),
        "rice_scaled": (holes, rice, {"BSCALE": 0.5, "BZERO": 100.0, "BLANK": -32768}),
        "gzip_short": (counts, {"compression_type": "GZIP_1"}, {}),
        "gzip_shuffled": (wild, {"compression_type": "GZIP_2", "tile_shape": (5, WIDTH)}, {}),
        "plio": (mask, {"compression_type": "PLIO_1"}, {}),
        "plio_tiles": (mask, {"compression_type": "PLIO_1", "tile_shape": (8, 9)}, {}),
        "hcompress": (counts, {"compression_type": "HCOMPRESS_1", "tile_shape": (16, 13)}, {}),
        "hcompress_whole": (
            (counts.astype(np.int32) - 900) * 1000,
            {"compression_type": "HCOMPRESS_1", "tile_shape": shape},
            {},
        ),
        "hcompress_lossy": (
            counts,
            {"compression_type": "HCOMPRESS_1", "tile_shape": shape, "hcomp_scale": 2.5},
            {},
        ),
        "hcompress_smooth": (
            counts,
            {
                "compression_type": "HCOMPRESS_1",
                "tile_shape": shape,
                "hcomp_scale": 4,
                "hcomp_smooth": 1,
            },
            {},
        ),
        "hcompress_smooth_tiles": (
            counts,
            {
                "compression_type": "HCOMPRESS_1",
                "tile_shape": (16, 16),
                "hcomp_scale": 7,
                "hcomp_smooth": 1,
            },
            {},
        ),
        "float_rice": (flux, rice | level | {"quantize_method": -1}, {}),
        "float_dither": (gaps, rice | level | dither | {"quantize_method": 1}, {}),
        "float_zeros": (gaps, rice | level | dither | {"quantize_method": 2}, {}),
        "float_large": (
            large,
            rice | level | {"quantize_method": 1, "dither_seed": 3, "tile_shape": (90, 140)},
            {},
        ),
        "float_steps": (steps, rice | level | {"quantize_method": 1, "dither_seed": 5}, {}),
        "float_gzip": (gaps, {"compression_type": "GZIP_2", "quantize_level": 0.0}, {}),
        "float_gzip_dither": (
            gaps,
            {"compression_type": "GZIP_1", "quantize_method": 1} | level | dither,
            {},
        ),
        "float_shuffled_dither": (
            gaps,
            {"compression_type": "GZIP_2", "quantize_method": 2, "tile_shape": (6, 11)}
            | level
            | dither,
            {},
        ),
        "unsigned_short": (counts.astype(np.uint16) + 40000, rice, {}),
        "float_hcompress": (
            flux,
            {"compression_type": "HCOMPRESS_1", "tile_shape": (15, 37), "quantize_method": 1}
            | level
            | dither,
            {},
        ),
        "double_rice": (flux.astype(np.float64), rice | level | {"quantize_method": -1}, {}),
        "double_gzip": (
            flux.astype(np.float64),
            {"compression_type": "GZIP_1", "quantize_level": 0.0},
            {},
        ),
    }


def scaled_table(path: Path, image: np.ndarray, cards: dict[str, Any]) -> None:
    """Cards that say what whole numbers mean are added to the table, as `fpack` keeps them."""
    with fits.open(path, mode="update", disable_image_compression=True) as file:
        file[1].header.update(cards)
        assert file[1].header["ZNAXIS1"] == image.shape[1]


def by_cfitsio(folder: Path, seed: int) -> None:
    """Writes some images by cfitsio itself."""
    random = np.random.default_rng(seed)
    flux = random.normal(10, 1, (HEIGHT, WIDTH)).astype(np.float32)
    counts = random.integers(0, 60000, (HEIGHT, WIDTH)).astype(np.int32)
    kinds: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
        "cfitsio_rice": (flux, {"compress": "RICE", "qlevel": 4.0, "qmethod": 1, "dither_seed": 7}),
        "cfitsio_gzip": (flux, {"compress": "GZIP_2", "qlevel": 0}),
        "cfitsio_hcompress": (counts, {"compress": "HCOMPRESS", "tile_dims": (10, 12)}),
        "cfitsio_plio": (counts % 9, {"compress": "PLIO", "tile_dims": (29, 37)}),
    }
    for name, (image, options) in kinds.items():
        with fitsio.FITS(str(folder / f"{name}.fits"), "rw") as file:
            file.write(image, **options)
        keep(folder, name, {})


def write(folder: Path, name: str, case: Case) -> None:
    """Writes a case and its pixels."""
    image, options, cards = case
    path = folder / f"{name}.fits"
    fits.HDUList([fits.PrimaryHDU(), fits.CompImageHDU(image, **options)]).writeto(path)
    if cards:
        scaled_table(path, image, cards)
    keep(folder, name, cards)


def keep(folder: Path, name: str, cards: dict[str, Any]) -> None:
    """Writes the pixels of a case, and packs both files."""
    path = folder / f"{name}.fits"
    with fits.open(path) as file:
        pixels = file[1].data.astype(np.float64)
    with fitsio.FITS(str(path)) as file:
        others = file[1].read().astype(np.float64)
    if cards:
        others[others == others.min()] = np.nan
    if not np.array_equal(pixels, others, equal_nan=True):
        worst = np.nanmax(np.abs(pixels - others))
        print(f"{name}: astropy and cfitsio differ by up to {worst}; cfitsio's pixels are kept")
        pixels = others
    plain = folder / f"{name}.plain.fits"
    fits.PrimaryHDU(pixels).writeto(plain)
    for file in (path, plain):
        with gzip.GzipFile(f"{file}.gz", "wb", mtime=0) as packed:
            packed.write(file.read_bytes())
        file.unlink()


def main() -> None:
    """Writes all cases."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 11
    for name, case in cases(seed).items():
        write(folder, name, case)
    by_cfitsio(folder, seed)


if __name__ == "__main__":
    main()
