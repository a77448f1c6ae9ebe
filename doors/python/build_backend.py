"""Builds the package with maturin, unless the interpreter cannot use it: pip tries that where no
wheel fits.
"""

import sysconfig

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise SystemExit(
        "eyas does not run on free-threaded builds of CPython. Install it with the standard build "
        "of the same version, such as python3.13 instead of python3.13t."
    )

from maturin import *  # noqa: E402, F403
