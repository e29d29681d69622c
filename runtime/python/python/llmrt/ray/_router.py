"""Routing by prefix: Ray Serve's router for the replicas."""

from __future__ import annotations

import random
import time
from array import array
from collections import Counter
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ._policy import Contents, rank

# Seconds between two reports of a replica.
REPORT_PERIOD = 1.0
# Seconds after which what was sent is in a report.
_FORGET = 2 * REPORT_PERIOD


class PrefixRouter(RequestRouter):
    """Chooses a replica by what its prefix cache has, and by its queue."""

    def initialize_state(self, queue_margin: int) -> None:
        """Called by Ray with `request_router_kwargs`."""
        self._margin = queue_margin
        self._contents: dict[ReplicaID, Contents] = {}
        self._reports: dict[ReplicaID, bytes] = {}
        # Of requests that this router has sent, or is about to send.
        self._where: dict[str, ReplicaID] = {}

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The replicas in the order of `rank`, each a rank of its own."""
        hashes = _hashes(pending_request)
        for replica in candidate_replicas:
            self._read_report(replica)
        # Equal ones in another order each time.
        replicas = random.sample(candidate_replicas, len(candidate_replicas))
        contents = [self._of(replica.replica_id) for replica in replicas]
        n_cached = [one.n_cached(hashes) for one in contents]
        # Ray forgets lengths of queues after some seconds, and has those that other routers fill only after an answer.
        n_sent = Counter(self._where.values())
        lengths = self.replica_queue_len_cache
        queues = [max(lengths.get(one.replica_id) or 0, n_sent[one.replica_id]) for one in replicas]
        order = [replicas[i] for i in rank(n_cached, queues, list(map(len, contents)), self._margin)]
        if pending_request is not None:
            # After all were tried once, the next round waits.
            pending_request.routing_context.should_backoff = True
            if order:
                self._expect(pending_request, order[0].replica_id)
        return [[replica] for replica in order]

    def _expect(self, request: PendingRequest, replica_id: ReplicaID) -> None:
        """Counts a request where it most probably goes: requests that come at the same time take that into account."""
        name = request.metadata.internal_request_id
        if name not in self._where:
            request.future.add_done_callback(lambda future: future.cancelled() and self._where.pop(name, None))
        self._where[name] = replica_id

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """What was sent is cached there soon."""
        self._of(replica_id).sent(_hashes(pending_request), time.monotonic())
        self._where[pending_request.metadata.internal_request_id] = replica_id

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """It counts no more."""
        self._where.pop(internal_request_id, None)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Nothing is cached there."""
        super().on_replica_actor_died(replica_id)
        self._contents.pop(replica_id, None)
        self._reports.pop(replica_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Forgets replicas that are gone."""
        super().update_replicas(replicas)
        for replica_id in self._contents.keys() - {replica.replica_id for replica in replicas}:
            self._contents.pop(replica_id)
            self._reports.pop(replica_id, None)

    def _of(self, replica_id: ReplicaID) -> Contents:
        return self._contents.setdefault(replica_id, Contents())

    def _read_report(self, replica: RunningReplica) -> None:
        report = (replica.routing_stats or {}).get("blocks")
        contents = self._of(replica.replica_id)
        if report is not None and report is not self._reports.get(replica.replica_id):
            self._reports[replica.replica_id] = report
            contents.report(array("Q", report))
        contents.forget(time.monotonic() - _FORGET)


def _hashes(request: PendingRequest | None) -> list[int]:
    """The names of the prompt's blocks, which the ingress has computed."""
    return request.kwargs.get("hashes", []) if request is not None else []
