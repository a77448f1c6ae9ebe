#!/usr/bin/env python3
"""Random FITS headers with positions by WCSLIB, as astropy has it, for
`dev/apps/stacking/tests/positions.rs`.

    dev/judges/positions.py HEADERS SEED [POINTS] >cases.txt

The form of a case is described in that test. `dev/judges/positions.sh` installs astropy and runs
both.
"""

from __future__ import annotations

import random
import sys
import warnings

import numpy as np
from astropy.io import fits
from astropy.wcs import WCS

ZENITHAL = ["TAN", "STG", "SIN", "ARC", "ZEA", "NCP", "ZPN", "AIR", "AZP", "SZP"]
OTHERS = ["CAR", "CEA", "CYP", "MER", "SFL", "PAR", "MOL", "AIT", "HPX", "COP", "COE", "COD", "COO"]
GRID = 9  # as the check of frames has it
RETURNED = 5e-4  # pixels; half of what frames are allowed
REFUSED_SHARE = 0.1
# A frame that is read, before these changes: cards, and a word of the message.
PLAIN = {
    "CTYPE1": "RA---TAN",
    "CTYPE2": "DEC--TAN",
    "CRPIX1": 10.0,
    "CRPIX2": 20.0,
    "CRVAL1": 30.0,
    "CRVAL2": 40.0,
}
PLAIN |= {"CD1_1": -1e-4, "CD2_2": 1e-4}
REFUSED = [
    ({"RADESYS": "FK4"}, "RADESYS"),
    ({"RADECSYS": "FK4-NO-E"}, "RADECSYS"),
    ({"EQUINOX": 1950.0}, "EQUINOX"),
    ({"EQUINOX": "B1950"}, "EQUINOX"),
    ({"EQUINOX": 1975.0, "RADESYS": "FK5"}, "EQUINOX"),
    ({"EPOCH": 1950.0}, "EPOCH"),
    ({"CUNIT1": "m"}, "CUNIT1"),
    ({"CTYPE1": "GLON-TAN", "CTYPE2": "GLAT-TAN"}, "CTYPE1"),
    ({"CTYPE1": "RA---TSC", "CTYPE2": "DEC--TSC"}, "CTYPE1"),
    ({"CTYPE1": "RA---TNX", "CTYPE2": "DEC--TNX"}, "CTYPE1"),
    ({"CTYPE2": "DEC--SIN"}, "CTYPE2"),
    ({"CPDIS1": "LOOKUP"}, "CPDIS1"),
    ({"CRVAL1": None}, "CRVAL1"),
    ({"CRVAL2": 90.5}, "CRVAL2"),
    ({"CD1_1": None}, "inverse"),
    ({"CD1_1": None, "CD2_2": None, "CDELT1": 1e-4}, "CDELT2"),
    ({"PC1_1": 1.0}, "PCi_j"),
    ({"CD1_3": 1e-5}, "CD1_3"),
    ({"PV1_5": 0.1}, "PV1_5"),
    ({"PV1_1": 1.0, "PV1_2": 0.1}, "PV1_1"),
    ({"CTYPE1": "RA---TPV", "CTYPE2": "DEC--TPV", "PV1_0": 0.1}, "PV1_1"),
    ({"CTYPE1": "RA---COP", "CTYPE2": "DEC--COP"}, "CTYPE1"),
    ({"CTYPE1": "RA---TAN-SIP", "CTYPE2": "DEC--TAN-SIP"}, "A_ORDER"),
    ({"A_ORDER": 2, "B_ORDER": 2, "A_0_2": 1e-6}, "A_0_2"),
]

Cards = dict[str, float | int | str]


def linear_cards(chance: random.Random, scale: float, swapped: bool, tpv: bool) -> Cards:
    """Turned, often mirrored, pixels not always square; in one of the forms. TPV is defined for CD
    only.
    """
    turn = np.radians(chance.choice([0.0, chance.uniform(-180, 180), chance.uniform(-3, 3)]))
    mirror, ratio = chance.choice([-1, -1, 1]), chance.choice([1.0, 1.0, chance.uniform(0.5, 2)])
    skew = chance.choice([0.0, 0.0, chance.uniform(-0.1, 0.1)])
    sin, cos = np.sin(turn), np.cos(turn)
    unit = np.array([[mirror * cos, -ratio * sin], [mirror * sin, ratio * cos]]) @ [
        [1, skew],
        [0, 1],
    ]
    form = "CD" if tpv else chance.choice(["CD", "CD", "PC", "CROTA", "CDELT", "PC alone"])
    axes = [(i, j) for i in (0, 1) for j in (0, 1)]
    if form == "CD":
        beside: Cards = (
            {"CDELT1": 7.0, "CDELT2": 9.0, "CROTA2": 33.0} if chance.random() < 0.3 else {}
        )
        return {
            f"CD{i + 1}_{j + 1}": float(scale * unit[i, j]) for i, j in axes if unit[i, j] != 0
        } | beside
    if form == "PC alone":
        return {f"PC{i + 1}_{j + 1}": float(scale * unit[i, j]) for i, j in axes}
    cards: Cards = {
        "CDELT1": -scale * chance.uniform(0.7, 1),
        "CDELT2": scale * chance.uniform(0.7, 1),
    }
    if form == "PC" and chance.random() < 0.2:  # the form of a draft
        cards |= {f"PC00{i + 1}00{j + 1}": float(unit[i, j]) for i, j in axes}
    elif form == "PC":
        cards |= {
            f"PC{i + 1}_{j + 1}": float(unit[i, j]) for i, j in axes if unit[i, j] != float(i == j)
        }
    elif form == "CROTA":
        cards["CROTA1" if swapped else "CROTA2"] = chance.uniform(-180, 180)
    return cards


def parameters(chance: random.Random, code: str) -> dict[int, float]:
    """The m and value of keywords PVi_m of a projection."""
    distance = chance.choice([0.0, 2.0, 0.5, 10.0])
    match code:
        case "SIN":
            return (
                {1: chance.uniform(-0.5, 0.5), 2: chance.uniform(-0.5, 0.5)}
                if chance.random() < 0.5
                else {}
            )
        case "ZPN":
            return {
                1: 1.0,
                2: chance.uniform(-0.1, 0.1),
                3: chance.choice([0.0, 0.42, -0.2]),
                5: 0.01,
            }
        case "AIR":
            return {1: chance.choice([90.0, 45.0, 10.0])}
        case "AZP":
            return {1: distance, 2: chance.uniform(-40, 40)}
        case "SZP":
            return {1: distance, 2: chance.uniform(-180, 180), 3: chance.uniform(40, 90)}
        case "CEA":
            return {1: chance.uniform(0.3, 1)} if chance.random() < 0.7 else {}
        case "CYP":
            return (
                {1: chance.uniform(0, 3), 2: chance.uniform(0.3, 1.5)}
                if chance.random() < 0.7
                else {}
            )
        case "COP" | "COE" | "COD" | "COO":
            middle = chance.choice([-1, 1]) * chance.uniform(20, 70)
            return {1: middle, 2: chance.choice([0.0, chance.uniform(1, 18)])}
        case "HPX":
            return (
                {1: chance.choice([4.0, 6.0]), 2: chance.choice([3.0, 2.0, 5.0])}
                if chance.random() < 0.3
                else {}
            )
        case _:
            return {}


def sip_cards(chance: random.Random, cards: Cards, width: int, height: int) -> Cards:
    """Polynomials that move corners by some pixels."""
    reach = np.hypot(max(abs(cards["CRPIX1"]), width), max(abs(cards["CRPIX2"]), height))
    strength = chance.choice([0.2, 3.0, 30.0])
    sip: Cards = {}
    for letter in "AB":
        order = chance.randint(2, 5)
        sip[f"{letter}_ORDER"] = order
        for p, q in ((p, q) for p in range(order + 1) for q in range(order + 1 - p) if p + q >= 2):
            if chance.random() < 0.7:
                sip[f"{letter}_{p}_{q}"] = float(
                    chance.uniform(-1, 1) * strength / reach ** (p + q)
                )
    if chance.random() < 0.3:  # only an approximation, which must not be used
        sip |= {"AP_ORDER": 2, "BP_ORDER": 2, "AP_0_2": 1e-6, "BP_1_1": 1e-6}
    return sip


def tpv_cards(chance: random.Random) -> Cards:
    """A distortion of some percent within a degree."""
    cards: Cards = {}
    for axis in (1, 2):
        cards[f"PV{axis}_1"] = chance.uniform(0.97, 1.03)
        for m in chance.sample([0, 2, *range(3, 40)], 8):
            cards[f"PV{axis}_{m}"] = chance.uniform(-1, 1) * 0.003
    return cards


def convert(chance: random.Random, cards: Cards) -> None:
    """Gives each axis a unit. Without CD and CDELT, PC has it."""
    for axis in (1, 2):
        unit, size = chance.choice(
            [("deg", 1.0)] * 6 + [("arcsec", 3600.0), ("arcmin", 60.0), ("rad", np.pi / 180)]
        )
        if unit != "deg" or chance.random() < 0.5:
            cards[f"CUNIT{axis}"] = unit
        letters = "PC" if not any(name.startswith(("CD", "CDELT")) for name in cards) else "CD"
        for name in (f"CRVAL{axis}", f"CDELT{axis}", f"{letters}{axis}_1", f"{letters}{axis}_2"):
            if name in cards:
                cards[name] = float(cards[name]) * size


def random_cards(chance: random.Random) -> tuple[Cards, int, int]:
    """A header that can be read, and the size of its frame."""
    width, height = chance.randint(2, 4000), chance.randint(2, 4000)
    kind = chance.choice(["TAN", "SIP", "TPV", "zenithal", "other"])
    code = {"zenithal": chance.choice(ZENITHAL), "other": chance.choice(OTHERS), "TPV": "TPV"}.get(
        kind, "TAN"
    )
    ending = "TAN-SIP" if kind == "SIP" else code
    swapped = kind != "TPV" and chance.random() < 0.15
    right_ascension, declination = (2, 1) if swapped else (1, 2)
    scale = 10 ** chance.uniform(-1.5, 1.5) / 3600
    if kind in ("zenithal", "other") and chance.random() < 0.4:
        scale = chance.uniform(5, 350) / max(width, height)
    if kind in ("SIP", "TPV"):
        scale = min(scale, 1.0 / max(width, height))
    cards: Cards = {
        f"CTYPE{right_ascension}": f"RA---{ending}",
        f"CTYPE{declination}": f"DEC--{ending}",
    }
    cards["CRPIX1"] = chance.choice([(width + 1) / 2, chance.uniform(-0.5, 1.5) * width])
    cards["CRPIX2"] = chance.choice([(height + 1) / 2, chance.uniform(-0.5, 1.5) * height])
    cards[f"CRVAL{right_ascension}"] = chance.choice(
        [chance.uniform(0, 360)] * 8 + [0.0, -20.0, 359.9999]
    )
    any_declination = float(np.degrees(np.arcsin(chance.uniform(-1, 1))))
    cards[f"CRVAL{declination}"] = chance.choice([any_declination] * 8 + [0.0, 90.0, -90.0])
    if code == "NCP":
        cards[f"CRVAL{declination}"] = chance.choice([-1, 1]) * chance.uniform(20, 89)
    cards |= linear_cards(chance, scale, swapped, kind == "TPV")
    if chance.random() < 0.25:
        cards["LONPOLE"] = chance.choice([180.0, 0.0, 90.0, chance.uniform(-180, 180)])
    if chance.random() < 0.25:
        cards["LATPOLE"] = chance.choice([90.0, -90.0, chance.uniform(-90, 90)])
    cards |= {f"PV{declination}_{m}": value for m, value in parameters(chance, code).items()}
    if code in OTHERS and chance.random() < 0.1:
        longitude, latitude = chance.uniform(-90, 90), chance.uniform(-60, 60)
        cards |= {f"PV{right_ascension}_1": longitude, f"PV{right_ascension}_2": latitude}
    if kind == "SIP":
        cards |= sip_cards(chance, cards, width, height)
    if kind == "TPV":
        cards |= tpv_cards(chance)
    else:
        convert(chance, cards)
    cards |= chance.choice(
        [{}, {"RADESYS": "ICRS"}, {"RADESYS": "FK5", "EQUINOX": 2000.0}, {"EQUINOX": 2000.0}]
    )
    return cards, width, height


def text_of(cards: Cards) -> list[str]:
    """Cards as a header has them."""
    written = {
        name: f"'{value:8}'" if isinstance(value, str) else repr(value).upper()
        for name, value in cards.items()
    }
    return [f"{name:8}= {value}" for name, value in written.items()]


def positions(wcs: WCS, pixels: np.ndarray) -> np.ndarray:
    """Right ascensions and declinations of pixels from zero."""
    return wcs.all_pix2world(pixels, 0)[:, [wcs.wcs.lng, wcs.wcs.lat]]


def pixels_of(wcs: WCS, places: np.ndarray) -> np.ndarray:
    """Pixels from zero of places, without SIP."""
    return wcs.wcs_world2pix(places[:, [0, 1] if wcs.wcs.lng == 0 else [1, 0]], 0)


def returns(wcs: WCS, code: str, width: int, height: int) -> bool:
    """Whether pixels return from the sky. SIP has no inverse in WCSLIB; its frames
    should return.
    """
    x, y = np.meshgrid(np.linspace(0, width - 1, GRID), np.linspace(0, height - 1, GRID))
    grid = np.column_stack([x.ravel(), y.ravel()])
    try:
        places = positions(wcs, grid)
        on_sky = np.isfinite(places).all(axis=1)
        # A map that goes round more than once shows places twice, and has no pixel beside the sky.
        if wcs.sip is not None or (code in ("CAR", "CEA", "CYP", "MER") and not on_sky.all()):
            return bool(on_sky.all())
        off = np.hypot(*(pixels_of(wcs, places[on_sky]) - grid[on_sky]).T)
    except Exception:  # WCSLIB refuses some headers only when they are used
        return False
    return bool(on_sky.any() and np.isfinite(off).all() and (off < RETURNED).all())


def numbers(values: np.ndarray) -> str:
    """Numbers of a line, or that there are none."""
    return (
        " ".join(repr(float(value)) for value in values) if np.isfinite(values).all() else "nowhere"
    )


def case(chance: random.Random, points: int) -> list[str]:
    """The lines of a case."""
    if chance.random() < REFUSED_SHARE:
        changes, word = chance.choice(REFUSED)
        cards = {name: value for name, value in (PLAIN | changes).items() if value is not None}
        return ["frame 100 100", *text_of(cards), f"refused {word}"]
    cards, width, height = random_cards(chance)
    lines = [f"frame {width} {height}", *text_of(cards)]
    try:
        wcs = WCS(fits.Header.fromstring("".join(f"{line:80}" for line in text_of(cards))))
        wcs.wcs.set()
        pixels = np.array(
            [[chance.uniform(0, width - 1), chance.uniform(0, height - 1)] for _ in range(points)]
        )
        places = positions(wcs, pixels)
    except Exception:  # no such projection
        return [*lines, "invalid"]
    code = str(cards["CTYPE1"])[5:8]
    # Only LATPOLE says then where the pole is; WCSLIB in astropy, which rounds, takes the nearer
    # pole.
    rounded = (
        cards.get("LONPOLE") == 90
        and 0.0 in (cards["CRVAL1"], cards["CRVAL2"])
        and "LATPOLE" in cards
    )
    lines.append("accepted" if returns(wcs, code, width, height) and not rounded else "either")
    lines += [
        f"pixel {numbers(pixel)} {numbers(place)}"
        for pixel, place in zip(pixels, places, strict=True)
    ]
    # WCSLIB has no inverse of SIP, one of TPV only near the frame, and shows places for SZP that
    # the sphere hides.
    if wcs.sip is None and code not in ("TPV", "SZP"):
        sky = [
            [chance.uniform(0, 360), np.degrees(np.arcsin(chance.uniform(-1, 1)))]
            for _ in range(points)
        ]
        sky = np.array(sky)
        found = pixels_of(wcs, sky)
        lines += [
            f"place {numbers(place)} {numbers(pixel)}"
            for place, pixel in zip(sky, found, strict=True)
        ]
    return lines


def main() -> None:
    """Prints the cases."""
    headers, seed = int(sys.argv[1]), int(sys.argv[2])
    points = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    print(f"# {headers} random headers of seed {seed}, with positions by WCSLIB.")
    for number in range(headers):
        print()
        print("\n".join(case(random.Random(f"{seed} {number}"), points)))


if __name__ == "__main__":
    main()
