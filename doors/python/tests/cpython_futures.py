"""CPython's own tests of executors, unmodified, with the executor of eyas.

Needs an interpreter that has its tests (``test.test_concurrent_futures``), and eyas installed in
it. Its classes are parametrised by the type of executor. Tests that cannot apply are excluded
below, each with its reason.
"""

import importlib
import pkgutil
import unittest

import eyas

_SUITE = importlib.import_module("test.test_concurrent_futures")
#: A module in CPython 3.11, a package in later ones.
_PARTS = [found.name for found in pkgutil.iter_modules(getattr(_SUITE, "__path__", []))]
_MODULES = [_SUITE, *(importlib.import_module(f"{_SUITE.__name__}.{part}") for part in _PARTS)]


def _find(name):
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


_NAMED = "it imports the executor from `concurrent.futures` by its name"
_PROCESSES = "it looks at processes that an executor of this process has started itself"
_SHARED = (
    "it shares a semaphore or a queue of `multiprocessing` with the workers, which only children "
    "can have"
)
_LIVES = "it expects a broken pool; here, the call alone fails, and the executor lives"

EXCLUDED = {
    "test_interpreter_shutdown": _NAMED,
    "test_submit_after_interpreter_shutdown": _NAMED,
    "test_hang_gh83386": _NAMED,
    "test_killed_child": _PROCESSES,
    "test_saturation": _SHARED,
    "test_idle_process_reuse_one": _PROCESSES,
    "test_idle_process_reuse_multiple": _PROCESSES,
    "test_max_tasks_per_child": _PROCESSES,
    "test_max_tasks_per_child_defaults_to_spawn_context": _PROCESSES,
    "test_max_tasks_early_shutdown": "`max_tasks_per_child` is `reuse`",
    "test_python_finalization_error": (
        "it makes the start of the second thread fail, which only a process pool starts"
    ),
    "test_ressources_gced_in_workers": _SHARED,
    "test_exit_at_task_unpickle": _LIVES,
    "test_error_at_task_unpickle": _LIVES,
    "test_crash_at_task_unpickle": _LIVES,
    "test_crash_during_func_exec_on_worker": _LIVES,
    "test_crash_during_result_pickle_on_worker": _LIVES,
    "test_error_during_result_unpickle_in_result_handler": _LIVES,
    "test_exit_during_result_unpickle_in_result_handler": _LIVES,
    "test_shutdown_deadlock": _LIVES,
    "test_crash_big_data": _LIVES,
    "test_shutdown_deadlock_pickle": "it waits for a thread of a process pool by name",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "it replaces parts of a process pool",
}


class EyasMixin(_find("ExecutorMixin")):
    """Gives the tests an executor of eyas."""

    class executor_type(eyas.Executor):
        """Ignores how processes of a process pool are started."""

        def __init__(self, *args, mp_context=None, **kwargs):
            super().__init__(*args, **kwargs)

    def get_context(self):
        return None


_matched = set()


def _with_eyas(name, *tests):
    made = type(
        name, (*map(_find, tests), EyasMixin, _find("BaseTestCase")), {"__module__": __name__}
    )
    for test, reason in EXCLUDED.items():
        if hasattr(made, test):
            setattr(made, test, unittest.skip(reason)(getattr(made, test)))
            _matched.add(test)
    return made


EyasExecutorTest = _with_eyas("EyasExecutorTest", "ProcessPoolExecutorTest", "ExecutorTest")
EyasDeadlockTest = _with_eyas("EyasDeadlockTest", "ExecutorDeadlockTest")
EyasWaitTest = _with_eyas("EyasWaitTest", "WaitTests")
EyasAsCompletedTest = _with_eyas("EyasAsCompletedTest", "AsCompletedTests")
EyasShutdownTest = _with_eyas("EyasShutdownTest", "ExecutorShutdownTest")
EyasInitializerTest = _with_eyas("EyasInitializerTest", "InitializerMixin")
EyasFailingInitializerTest = _with_eyas("EyasFailingInitializerTest", "FailingInitializerMixin")


#: CPython 3.11 does not have all of them.
_LATER = {
    "test_max_tasks_early_shutdown",
    "test_python_finalization_error",
    "test_hang_gh83386",
    "test_crash_big_data",
}
assert _matched | _LATER >= EXCLUDED.keys(), EXCLUDED.keys() - _matched


if __name__ == "__main__":
    unittest.main()
