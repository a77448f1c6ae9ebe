"""What a job needs, in words of eyas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eyas._executor.options import Options

#: Bytes of the Snakemake that runs a job: a child of the worker.
_SNAKEMAKE_BYTES = 200_000_000


def options_of(job: Any, max_cpus: float | None) -> Options:
    """Return the options of the call that runs a job."""
    resources = job.resources
    cpus = float(max(1, job.threads))
    # As Snakemake has it on one machine, a rule with more threads than there are processors runs
    # with all of them.
    options: Options = {"cpus": cpus if max_cpus is None else min(cpus, max_cpus)}
    if isinstance(memory := resources.get("mem_mb"), int) and memory > 0:
        options["memory"] = memory * 1_000_000 + _SNAKEMAKE_BYTES
    if isinstance(minutes := resources.get("runtime"), int | float) and minutes > 0:
        options["timeout"] = 60.0 * minutes
    gpus = resources.get("gpu", resources.get("gpus", resources.get("nvidia_gpu")))
    if isinstance(gpus, int) and gpus > 0:
        options["gpus"] = gpus
    if priority := getattr(job, "priority", 0):
        options["priority"] = max(-(1 << 31), min(int(priority), (1 << 31) - 1))
    if requirements := resources.get("eyas_requirements"):
        options["requirements"] = str(requirements)
    return options
