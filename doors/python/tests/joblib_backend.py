"""A plugin of pytest: joblib's own tests run on eyas, too, because its list of backends has it."""

import eyas.joblib

__all__ = ["eyas"]
