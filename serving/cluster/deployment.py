"""Ray Serve behind a small interface: connects to the cluster, deploys an engine, and calls its
replicas. The only file that imports Ray."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from core.errors import ConfigError, EngineMissing
from engines.runtime.worker.replica import EngineReplica
from serving.cluster.settings import ReplicaPlan

logger = logging.getLogger(__name__)

ROUTER = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
"""Router of incremental models: calls with one session id go to one replica, and to a neighbour if
that one is full or lost."""

QUEUE_FACTOR = 2
"""Calls that one replica holds as a multiple of those that it computes at once. With one more ready
to begin, a replica never waits for the network."""

HEALTH_PERIOD_S = 2.0
"Time between two health checks. A replica whose call hangs is replaced after the next one."

DRAIN_LIMIT_S = 30.0
"Longest time that a replica which is stopped may finish its calls."

CONSTRUCTOR_TRIES = 2
"Times that loading a replica is tried. Files that are wrong stay wrong."

VERSION_DIGITS = 8
"Hexadecimal digits at the end of an application's name that stand for its settings."


class ReplicaLost(Exception):
    """The replica of a call has died or cannot be reached. Another one can answer the same call."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A machine of the cluster."""

    address: str
    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """A model that runs on the cluster."""

    name: str
    state: str
    "State of the application as Ray Serve names it, such as RUNNING."
    replicas: int
    "Number of replicas that serve calls."


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """Machines of the cluster, and the models on them."""

    nodes: tuple[ClusterNode, ...]
    models: tuple[ClusterModel, ...]


class RayLog(logging.Filter):
    """Writes what Ray's loggers report into our log: warnings as they are, everything else at the
    level debug. Their own lines on standard error have another format, and nobody asked for them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Takes the record, and returns False: Ray's handlers do not get it."""
        level = record.levelno if record.levelno >= logging.WARNING else logging.DEBUG
        logger.log(level, "ray: %s", record.getMessage())
        return False


RAY_LOG = RayLog()

RAY_LOGGERS = ("ray.serve", "ray._private.worker")
"Loggers that write to the standard error of a process that uses the cluster."


def import_ray() -> Any:
    """Returns the package `ray` with `ray.serve` loaded. Raises ConfigError if it is missing."""
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise ConfigError(
            f'pool = "ray" needs Ray, which is not installed: earshot extras add scale ({error})'
        ) from None
    assert serve
    for name in RAY_LOGGERS:
        logging.getLogger(name).addFilter(RAY_LOG)  # a second time does nothing
    return ray


class ReplicaHandle:
    """Calls the replicas of one deployment. Each call goes to the replica with fewer calls of two,
    or to the one of its session."""

    def __init__(self, handle: Any, lost: tuple[type[Exception], ...]) -> None:
        """`handle`: Ray Serve's handle. `lost`: its errors that mean a lost replica."""
        self._handle, self._lost = handle, lost

    async def describe(self) -> bytes:
        """Returns the engine's properties, see `EngineReplica.describe`. Raises ReplicaLost."""
        return await self._result(self._handle.describe.remote())

    async def compute(self, request: bytes, limit_s: float, session: str = "") -> bytes:
        """Makes a call with one result, see `EngineReplica.compute`. Cancelling it frees the
        replica. `session`: id of the sequence whose state a replica keeps. Raises ReplicaLost."""
        handle = self._handle.options(session_id=session) if session else self._handle
        return await self._result(handle.compute.remote(request, limit_s))

    async def stream(self, request: bytes, limit_s: float) -> AsyncGenerator[bytes, None]:
        """Makes a call with a stream of replies, see `EngineReplica.stream`. Closing the generator
        frees the replica. Raises ReplicaLost."""
        replies = self._handle.options(stream=True).stream.remote(request, limit_s)
        is_over = False
        try:
            async for reply in replies:
                yield reply
            is_over = True
        except self._lost as error:
            is_over = True
            raise ReplicaLost(str(error).partition("\n")[0]) from error
        finally:
            if not is_over:
                replies.cancel()  # dropping it would leave the replica at work

    async def broadcast(self, request: bytes, limit_s: float) -> None:
        """Makes a call on every replica that runs now, and drops the results. `limit_s`: longest
        time in seconds. Raises TimeoutError. A replica that is lost has nothing to answer."""
        calls = self._handle.broadcast("compute", request, limit_s)
        await calls.results_async(timeout_s=limit_s, return_exceptions=True)

    async def _result(self, response: Any) -> bytes:
        is_over = False
        try:
            data: bytes = await response
            is_over = True
        except self._lost as error:
            is_over = True
            raise ReplicaLost(str(error).partition("\n")[0]) from error
        finally:
            if not is_over:
                response.cancel()
        return data


class RayCluster:
    """Connection of this process to the cluster. One for all pools."""

    def __init__(self, address: str = "", *, is_local: bool = False) -> None:
        """`address`: host and port of the cluster's head. `is_local`: True: deployments run inside
        this process, without a cluster, in Ray Serve's local testing mode."""
        self._address, self._is_local = address, is_local

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Connects while the body runs. Raises ConfigError if Ray is missing, or the cluster does
        not answer. Deployments stay when the connection ends."""
        if self._is_local:
            yield
            return
        await asyncio.to_thread(self._connect)
        try:
            yield
        finally:
            await asyncio.to_thread(import_ray().shutdown)

    async def deploy(self, plan: ReplicaPlan, load: bytes, *, is_sticky: bool) -> ReplicaHandle:
        """Has the engine run on the cluster, and returns its handle when the first replica has
        loaded. An equal deployment that runs already is used as it is. `load`: a `LoadRequest` as
        a frame. `is_sticky`: True: calls of one session go to one replica.

        Raises EngineMissing if it does not load.
        """
        return await asyncio.to_thread(self._deploy, plan, load, is_sticky)

    async def status(self) -> ClusterStatus:
        """Returns the machines that run now, and the models."""
        return await asyncio.to_thread(self._status)

    def _status(self) -> ClusterStatus:
        ray = import_ray()
        nodes = tuple(
            ClusterNode(
                node["NodeManagerAddress"],
                node["Resources"].get("CPU", 0.0),
                node["Resources"].get("GPU", 0.0),
            )
            for node in ray.nodes()
            if node["Alive"]
        )
        models = tuple(
            ClusterModel(
                name,
                application.status.value,
                sum(
                    deployment.replica_states.get("RUNNING", 0)
                    for deployment in application.deployments.values()
                ),
            )
            for name, application in ray.serve.status().applications.items()
        )
        return ClusterStatus(nodes, models)

    def _connect(self) -> None:
        ray = import_ray()
        try:
            ray.init(
                address=self._address,
                namespace="earshot",
                log_to_driver=False,
                logging_level=logging.WARNING,
                configure_logging=False,
            )
            # No proxy, so no further port: callers have handles.
            ray.serve.start(http_options={"location": "NoServer"})
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise ConfigError(
                f"cluster.address: no answer of a Ray cluster at {self._address}: {error};"
                " `earshot cluster start` or `join` must run on this machine"
            ) from error

    def _deploy(self, plan: ReplicaPlan, load: bytes, is_sticky: bool) -> ReplicaHandle:
        ray = import_ray()
        serve, options = ray.serve, _options(plan, is_sticky)
        # The name says everything that decides how the engine runs. So an application of this name
        # is used as it is; running it again would replace its replicas.
        text = repr((plan.nice, options)).encode() + load
        name = f"{plan.name}-{hashlib.sha256(text).hexdigest()[:VERSION_DIGITS]}"
        try:
            if not self._is_local and name in serve.status().applications:
                handle = serve.get_app_handle(name)
            else:
                bound = serve.deployment(EngineReplica, **options).bind(load, plan.nice)
                handle = serve.run(
                    bound, name=name, route_prefix=None, _local_testing_mode=self._is_local
                )
            if not self._is_local:
                self._delete_older(plan.name, name)
        except (ConfigError, RuntimeError, TimeoutError, ray.exceptions.RayError) as error:
            raise EngineMissing("cluster", name, f"does not load: {error}") from error
        errors = ray.exceptions
        return ReplicaHandle(
            handle,
            (
                errors.ActorDiedError,
                errors.ActorUnavailableError,
                errors.NodeDiedError,
                errors.WorkerCrashedError,
                errors.OwnerDiedError,
            ),
        )

    def _delete_older(self, plan_name: str, name: str) -> None:
        """Stops the replicas of this model that run with other settings. They would keep memory
        that nobody uses any more."""
        serve = import_ray().serve
        for other in serve.status().applications:
            if other != name and other[: -VERSION_DIGITS - 1] == plan_name:
                logger.info("cluster: %s replaces %s", name, other)
                serve.delete(other)


def _options(plan: ReplicaPlan, is_sticky: bool) -> dict[str, Any]:
    """Returns the options of the deployment."""
    pool = plan.pool
    options: dict[str, Any] = {
        "name": "engine",
        "max_ongoing_requests": plan.concurrency * (QUEUE_FACTOR if plan.has_queue else 1),
        "health_check_period_s": HEALTH_PERIOD_S,
        "graceful_shutdown_timeout_s": DRAIN_LIMIT_S,
        "max_constructor_retry_count": CONSTRUCTOR_TRIES,
        "ray_actor_options": {
            "num_cpus": pool.cpus,
            "num_gpus": pool.gpus,
            "runtime_env": {"env_vars": dict(plan.environment)},
        },
        "autoscaling_config": {
            "min_replicas": pool.min_replicas,
            "max_replicas": pool.most_replicas,
            "target_ongoing_requests": plan.concurrency,
            "upscale_delay_s": pool.upscale_delay_s,
            "downscale_delay_s": pool.downscale_delay_s,
        },
    }
    if is_sticky:
        options["request_router_config"] = {"request_router_class": ROUTER}
    return options
