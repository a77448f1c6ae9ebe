"""Executors on the nodes of a Ray cluster: in an actor for each node, which has the node's free
resources.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .._errors import ClusterError
from .._optional import Needs
from .cluster import EngineCluster, by_value, executor_on
from .node import Description, Node

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._executor.executor import Executor, ExecutorOptions

#: Seconds between two looks of an actor at its executor.
_LOOK_EVERY_S = 0.25
#: Seconds that Ray has to end the actors.
_END_DEADLINE_S = 30.0

_LOGGER = logging.getLogger("eyas")


class _Holder:
    """The actor."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._node: Node | None = None
        self._is_over = False

    def run(self) -> None:
        """Run the executor until it ends."""
        self._node = Node(self._description)
        try:
            while not self._is_over and not self._node.wait(_LOOK_EVERY_S):
                pass
        finally:
            self._node.stop()

    def stop(self) -> None:
        """Stop the executor, in another thread."""
        self._is_over = True


class _RayEngine:
    def __init__(self, ray: Any, new_nodes: bool) -> None:
        self._ray = ray
        self._grows = new_nodes
        #: For each node: the name of its executor, the address of the node, its actor, and the end
        #: of the executor.
        self._held: dict[str, tuple[str, str, Any, Any]] = {}
        self._told: set[str] = set()

    def start(self, cluster: EngineCluster) -> None:
        self._cluster = cluster
        self._take()
        if not self._held:
            raise ClusterError("no node of the Ray cluster has a free CPU")

    def _take(self) -> None:
        from ray import cloudpickle
        from ray._private.state import available_resources_per_node
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        new = [
            node for node in self._ray.nodes() if node["Alive"] and node["NodeID"] not in self._held
        ]
        if not new:
            return
        free_by_node = available_resources_per_node()
        for node in new:
            free = free_by_node.get(node["NodeID"], {})
            cpus, gpus, memory = (
                int(free.get("CPU", 0)),
                int(free.get("GPU", 0)),
                int(free.get("memory", 0)),
            )
            if cpus == 0:
                continue
            address = node["NodeManagerAddress"]
            description = self._cluster.describe(
                address, len(self._held), cpus, memory or None, gpus
            )
            with by_value(cloudpickle, __name__):
                actor = (
                    self._ray.remote(_Holder)
                    .options(
                        name=description.name,
                        num_cpus=cpus,
                        num_gpus=gpus,
                        memory=memory,
                        max_concurrency=2,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(
                            node["NodeID"], soft=False
                        ),
                    )
                    .remote(description)
                )
            self._held[node["NodeID"]] = (description.name, address, actor, actor.run.remote())

    def _error_of(self, end: Any) -> BaseException | None:
        done, _ = self._ray.wait([end], timeout=0)
        if not done:
            return None
        try:
            self._ray.get(end)
        except Exception as error:
            return error
        return None

    def missing(self, joined: set[str]) -> list[str]:
        for _, address, _, end in self._held.values():
            if (error := self._error_of(end)) is not None:
                raise ClusterError(
                    f"the executor on the Ray node {address} has failed: {error}"
                ) from error
        return [address for name, address, _, _ in self._held.values() if name not in joined]

    def look(self) -> bool:
        if not self._ray.is_initialized():
            return False
        if self._grows:
            self._take()
        for node, (_, address, _, end) in self._held.items():
            if node not in self._told and (error := self._error_of(end)) is not None:
                self._told.add(node)
                _LOGGER.warning("the executor on the Ray node %s has ended: %s", address, error)
        return True

    def stop(self) -> None:
        if not self._ray.is_initialized():
            return
        for _, _, actor, _ in self._held.values():
            actor.stop.remote()
        ends = [end for _, _, _, end in self._held.values()]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_END_DEADLINE_S)
        for _, _, actor, _ in self._held.values():
            self._ray.kill(actor)
        self._held.clear()


def on_ray(
    *,
    new_nodes: bool = True,
    host: str | None = None,
    start_timeout: float = 120.0,
    files: bool = False,
    **options: Unpack[ExecutorOptions],
) -> Executor:
    """Return an executor on the nodes of the Ray cluster that this process has joined with
    :func:`ray.init`.

    Each node gives it its free CPUs, GPUs and memory, which Ray sees as taken until the executor is
    shut down. With ``new_nodes``, it also gets nodes that join later. The nodes reach this process
    at ``host``, by default the address that Ray has for this node.

    With ``files``, the executors keep files of the cluster, ``eyas:///…``; large arguments and
    shared values are such files, too.

    Raises :class:`ClusterError` if an executor cannot start, or has not joined after
    ``start_timeout`` seconds.
    """
    with Needs("ray", "eyas.on_ray"):
        import ray
        from ray.util.client import ray as remote_client

    if remote_client.is_connected():
        raise ClusterError(
            "on_ray needs a driver on a node of the cluster, not a Ray client of a ray:// address"
        )
    if not ray.is_initialized():
        raise ClusterError(
            "this process has joined no Ray cluster: call ray.init(address=…) before"
        )
    host = host or ray.util.get_node_ip_address()
    return executor_on(_RayEngine(ray, new_nodes), host, start_timeout, options, has_files=files)
