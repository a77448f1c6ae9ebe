"""A configuration for Parsl's own tests: ``pytest --pyargs parsl.tests
--config parsl_config.py``.
"""

from eyas.parsl import EyasExecutor
from parsl.config import Config


def fresh_config():
    return Config(executors=[EyasExecutor(max_workers=2)])


config = fresh_config()
