#!/usr/bin/env python3
"""Normalised compression distance of two files: near 0 for the same content, near 1 for nothing in
common.

    ncd.py A B

(C(AB) - min(C(A), C(B))) / max(C(A), C(B)), where C is the length after compression (R. Cilibrasi,
P. Vitanyi, "Clustering by Compression", IEEE Transactions on Information Theory 51(4), 2005). The
distance needs no knowledge of the content: the paper sorts mammals by their genomes, languages by a
text, and music by its notes. The compressor is LZMA, because its window is larger than such files.
"""

import lzma
import sys
from pathlib import Path


def compressed_length(content: bytes) -> int:
    """C: raw LZMA, without the fixed bytes of a file format, which would count as shared."""
    return len(
        lzma.compress(
            content, format=lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}]
        )
    )


if len(sys.argv) != 3:
    sys.exit(__doc__)
a, b = (Path(path).read_bytes() for path in sys.argv[1:])
alone = compressed_length(a), compressed_length(b)
print(f"{(compressed_length(a + b) - min(alone)) / max(alone):.4f}")
