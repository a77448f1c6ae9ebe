"""loky's own tests of executors, unmodified, with the executor of eyas.

    loky_executors.py FOLDER [OPTIONS OF PYTEST]    FOLDER is loky's unpacked source distribution

Needs loky, psutil and pytest beside eyas. The tests import an executor from loky; here, they find
one that takes loky's keywords and is an executor of eyas. Tests that cannot apply are excluded
below, each with its reason.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import sys
import threading
import time
from concurrent.futures import CancelledError
from concurrent.futures.process import _RemoteTraceback
from types import SimpleNamespace

import eyas
import loky
import psutil
import pytest
from loky import process_executor

FOLDER = os.path.abspath(sys.argv[1])
#: Seconds that the processes of a cluster have to end.
END_S = 30.0

_PROCESSES = "it looks at processes that an executor of this process has started itself"
_INSIDE = "it looks at or replaces parts of loky's executor"
_LIVES = "it expects a broken pool; here, the call alone fails, and the executor lives"
_RESIZED = "an executor of eyas has the workers that it was started with"
_BY_NAME = "a program of its own imports loky's executor by its name"
_LEAKS = "a worker of eyas has a limit of memory, and no measure of leaks"
_REDUCERS = "reducers are an option of loky"
_HERE = "it expects the traceback of a worker for a result that fails to be unpickled in the client"

EXCLUDED: dict[str, str] = {
    # Of `_test_process_executor.py`.
    "test_interpreter_shutdown": _BY_NAME,
    "test_hang_gh94440": _BY_NAME,
    "test_hang_issue39205": _BY_NAME,
    "test_killed_child": _PROCESSES,
    "test_killed_child_with_cancelled_work_items": _PROCESSES,
    "test_worker_timeout": "idle workers have no timeout",
    "test_serialization": _REDUCERS,
    "test_max_depth": "there is no bound of executors in executors",
    "test_memory_leak_protection": _LEAKS,
    "test_reference_cycle_collection": _INSIDE,
    "test_processes_crash_handling_after_executor_gc": _LIVES,
    "test_exited_child": _LIVES,
    "test_no_deprecation_warning_is_raised_on_fork": _INSIDE,
    "test_manager_thread_crash_breaks_executor": _INSIDE,
    "test_feeder_error_hook_crash_breaks_executor": _INSIDE,
    # Of `test_reusable_executor.py`.
    "test_crashes[return_instance-args14": _HERE,
    "test_crashes[return_instance-args15": _HERE,
    "test_in_callback_submit_with_crash[return_instance-args14": _HERE,
    "test_in_callback_submit_with_crash[return_instance-args15": _HERE,
    "test_deadlock_kill": _PROCESSES,
    "test_crash_races": _PROCESSES,
    "test_shutdown_deadlock": _PROCESSES,
    "test_call_item_gc_crash_or_exit": _INSIDE,
    "test_sigkill_shutdown_leaks_workers": _BY_NAME,
    "test_reusable_executor_resize": _RESIZED,
    "test_kill_after_resize_call": _RESIZED,
    "test_resize_after_timeout": _RESIZED,
    "test_invalid_process_number": _INSIDE,
    "test_compat_with_concurrent_futures_exception": _LIVES,
    "test_invalid_context": "there are no contexts of `multiprocessing`",
    "test_pass_start_method_name_as_context": "there are no contexts of `multiprocessing`",
    "test_interactively_defined_executor_no_main": _BY_NAME,
    "test_reused_flag": _INSIDE,
    "test_interactively_defined_nested_functions": _BY_NAME,
    "test_interactively_defined_recursive_functions": _BY_NAME,
    "test_no_deadlock_on_nested_reusable_exector": _BY_NAME,
    "test_max_memory_leak_size_env_var": _LEAKS,
    "test_reusable_executor_reuse_true": _INSIDE,
    "test_faulthandler_enabled": _BY_NAME,
    "test_error_in_nested_call_keeps_resource_tracker_silent": _BY_NAME,
    "test_no_crash_max_workers_on_windows": _INSIDE,
    "test_thread_local": _INSIDE,
}


class _Processes(dict):
    """Stands for the processes of an executor: they have ended when its cluster has."""

    class _Process:
        def __init__(self, cluster: psutil.Process) -> None:
            self._cluster = cluster

        def join(self) -> None:
            psutil.wait_procs([self._cluster], END_S)
            assert not self._cluster.is_running() or self._cluster.status() == "zombie"

    def __init__(self, executor: EyasPool) -> None:
        cluster = psutil.Process(executor._state.cluster._process._process.pid)
        super().__init__({n: self._Process(cluster) for n in range(executor._max_workers)})


class EyasPool(eyas.Executor):
    """Takes the keywords of loky."""

    def __init__(
        self,
        max_workers=None,
        job_reducers=None,
        result_reducers=None,
        timeout=None,
        context=None,
        initializer=None,
        initargs=(),
        env=None,
    ):
        super().__init__(max_workers, initializer, initargs, variables=env or {})
        self._processes = _Processes(self)
        self._executor_manager_thread = self._receiver
        self._call_queue = SimpleNamespace(join_thread=self._receiver.join)
        self._flags = _Flags(self._state)

    def shutdown(self, wait=True, kill_workers=False):
        if kill_workers:
            self._state.cancel_all()
        super().shutdown(wait)


class _Flags:
    """What loky says of the state of an executor."""

    def __init__(self, state):
        self._state = state

    @property
    def broken(self):
        return self._state.broken

    @property
    def shutdown(self):
        return self._state.is_shut


_reusable = threading.local()


def get_reusable_executor(max_workers=None, kill_workers=False, reuse="auto", **options):
    """The executor of this thread. It is another one if the options are others."""
    known = getattr(_reusable, "executor", None)
    asked = (max_workers or os.cpu_count(), options)
    if known is not None and not known._flags.shutdown and known._flags.broken is None:
        if reuse is True or (reuse and _reusable.asked == asked):
            return known
        known.shutdown(kill_workers=kill_workers)
    _reusable.executor, _reusable.asked = EyasPool(asked[0], **options), asked
    return _reusable.executor


def _clusters(process):
    """The clusters that a process has started."""
    found = []
    for child in process.children():
        # One that has just ended has no words.
        with contextlib.suppress(psutil.Error):
            words = " ".join(child.cmdline())
            if "eyas start local" in words:
                found.append((child.pid, words))
    return found


def _in_words_of_eyas(match):
    """A pattern for the message of a call whose worker has ended, for loky's pattern."""
    match = re.sub(r"EXIT\\\((\d+)\\\)", r"exit code \1", match)
    return match.replace("SIGSEGV", "signal 11").replace("SIGKILL", "signal 9")


# In place of what the tests import. A call fails where a pool would break.
process_executor.ProcessPoolExecutor = EyasPool
process_executor.TerminatedWorkerError = eyas.CallFailed
process_executor.BrokenProcessPool = (eyas.CallFailed, Exception, SystemExit)
process_executor.ShutdownExecutorError = (RuntimeError, CancelledError)
process_executor._RemoteTraceback = _RemoteTraceback
loky.get_reusable_executor = get_reusable_executor

sys.path.insert(0, FOLDER)
os.chdir(FOLDER)
from tests import (  # noqa: E402
    _executor_mixin,
    _test_process_executor,
    test_reusable_executor,
    utils,
)

for module in (_test_process_executor, test_reusable_executor, utils):
    module.filter_match = _in_words_of_eyas
_executor_mixin._check_subprocesses_number = lambda *_, **__: None
_executor_mixin._running_children_pids_with_cmdline = _clusters
_manager = multiprocessing.Manager()
_check_started = _executor_mixin._check_executor_started


def _prime(executor):
    """Waits until all workers run: some tests take less time than the start of an interpreter."""
    _check_started(executor)
    list(executor.map(time.sleep, [0.1] * executor._max_workers))


_executor_mixin._check_executor_started = _prime


def _set_up(cls):
    # An event of `multiprocessing` itself is for children of this process only.
    _executor_mixin._test_event = _manager.Event()


_executor_mixin.ExecutorMixin.setup_class = classmethod(_set_up)


class Exclusions:
    """Skips the tests that cannot apply."""

    def __init__(self):
        self.matched = set()

    def pytest_collection_modifyitems(self, items):
        for item in items:
            for known, reason in EXCLUDED.items():
                if item.originalname == known or ("[" in known and item.name.startswith(known)):
                    self.matched.add(known)
                    item.add_marker(pytest.mark.skip(reason=reason))

    def pytest_collection_finish(self, session):
        unmatched = EXCLUDED.keys() - self.matched
        assert not unmatched or session.config.option.keyword, unmatched


if __name__ == "__main__":
    exclusions = Exclusions()
    files = ["test_process_executor_loky.py", "test_reusable_executor.py"]
    sys.exit(
        pytest.main(
            ["-p", "no:cacheprovider", "--skip-high-memory", "--loky-verbosity", "60"]
            + [os.path.join("tests", file) for file in files]
            + sys.argv[2:],
            plugins=[exclusions],
        )
    )
