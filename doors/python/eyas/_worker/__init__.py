"""What workers need of this package: the worker itself, and the bytes of calls, which clients make.

Each packed environment has this package and nothing else of eyas, so it imports the standard
library and cloudpickle alone.
"""
