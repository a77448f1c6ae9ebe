#!/usr/bin/env python3
"""Normalised compression distance of two files: near 0 if one says what the other says, near 1 if they share nothing.

    ncd.py A B

(C(AB) - min(C(A), C(B))) / max(C(A), C(B)), where C is the length after compression (R. Cilibrasi, P. Vitanyi,
"Clustering by Compression", IEEE Transactions on Information Theory 51(4), 2005). It needs to know nothing of what is
in the files: it has sorted mammals by their genomes, languages by a text, music by its notes. The compressor is LZMA,
whose window is larger than such files.
"""

import lzma
import sys
from pathlib import Path


def compressed_length(content: bytes) -> int:
    """C: raw LZMA, without the fixed bytes of a file format, which would count as shared."""
    return len(lzma.compress(content, format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}]))


if len(sys.argv) != 3:
    sys.exit(__doc__)
a, b = (Path(path).read_bytes() for path in sys.argv[1:])
alone = compressed_length(a), compressed_length(b)
print(f"{(compressed_length(a + b) - min(alone)) / max(alone):.4f}")
