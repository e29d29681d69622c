"""Routing by prefix: Ray Serve's router for the replicas."""

from __future__ import annotations

import random
import time
from array import array
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ._policy import Contents, Sent, rank

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
        self._sent = Sent()

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
        # All requests come through this router. The lengths that Ray keeps are those of the last answer, for ten seconds.
        n_sent = self._sent.by_replica(time.monotonic())
        queues = [n_sent[one.replica_id] for one in replicas]
        order = [replicas[i] for i in rank(n_cached, queues, list(map(len, contents)), self._margin)]
        if pending_request is not None:
            # After all were tried once, the next round waits.
            pending_request.routing_context.should_backoff = True
            if order:
                name = pending_request.metadata.internal_request_id
                self._sent.expected(name, order[0].replica_id, time.monotonic())
        return [[replica] for replica in order]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        """What was sent is cached there soon."""
        self._of(replica_id).sent(_hashes(pending_request), time.monotonic())
        self._sent.routed(pending_request.metadata.internal_request_id, replica_id)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """It counts no more."""
        self._sent.completed(internal_request_id, replica_id, time.monotonic())

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Nothing is cached there."""
        super().on_replica_actor_died(replica_id)
        self._contents.pop(replica_id, None)
        self._reports.pop(replica_id, None)
        self._sent.lost(replica_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Forgets replicas that are gone."""
        super().update_replicas(replicas)
        for replica_id in self._contents.keys() - {replica.replica_id for replica in replicas}:
            self._contents.pop(replica_id)
            self._reports.pop(replica_id, None)
            self._sent.lost(replica_id)

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
