"""Which replica a request goes to. Pure functions, for the router and the simulation."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Container, Hashable, Sequence
from typing import Any


def rank(n_cached: Sequence[int], queues: Sequence[int], n_held: Sequence[int], margin: int) -> list[int]:
    """The order in which replicas are tried.

    First those that have some of the prompt in their cache and at most `margin` requests more than the least loaded one: the
    longest cached prefix first, of equal ones the shortest queue. Then all others by their queues, so that a prefix that many
    requests share spreads to a second replica once the first is busy; of equal queues the cache that holds less first, so that
    prefixes are spread over all caches.

    Args:
        n_cached: Blocks of the prompt, from its beginning, that each replica has.
        queues: Requests that run or wait on each.
        n_held: Blocks that each cache holds.
        margin: See above.
    """
    if not queues:
        return []
    limit = min(queues) + margin

    def key(i: int) -> tuple[int, int, int, int]:
        is_preferred = n_cached[i] > 0 and queues[i] <= limit
        return (-n_cached[i] if is_preferred else 0, queues[i], n_held[i], i)

    return sorted(range(len(queues)), key=key)


def n_cached(hashes: Sequence[int], cache: Container[int]) -> int:
    """Blocks of a prompt, from its beginning, that a cache has."""
    for n, name in enumerate(hashes):
        if name not in cache:
            return n
    return len(hashes)


class Contents:
    """What a replica's cache has: what it has reported, and what was sent to it since."""

    def __init__(self) -> None:
        self._reported: frozenset[int] = frozenset()
        self._sent: OrderedDict[int, float] = OrderedDict()

    def report(self, hashes: Collection[int]) -> None:
        """Replaces the last report."""
        self._reported = frozenset(hashes)

    def sent(self, hashes: Sequence[int], now: float) -> None:
        """The prompt with these blocks was sent at this time, in seconds."""
        for name in hashes:
            self._sent[name] = now
            self._sent.move_to_end(name)

    def forget(self, before: float) -> None:
        """Forgets what was sent before a time: it is in the report, or was evicted."""
        while self._sent and next(iter(self._sent.values())) < before:
            self._sent.popitem(last=False)

    def n_cached(self, hashes: Sequence[int]) -> int:
        """Blocks of a prompt, from its beginning, that the replica has."""
        return n_cached(hashes, self)

    def __len__(self) -> int:
        return len(self._reported) + sum(name not in self._reported for name in self._sent)

    def __contains__(self, name: object) -> bool:
        return name in self._reported or name in self._sent


class Sent:
    """The requests that a router has sent and that have not ended.

    A router reports a request's end for each replica that was tried, sometimes before it reports that it was sent there, and drops
    some that it was about to send without a report.
    """

    # Seconds in which a request that is about to be sent is sent, and in which reports come in a wrong order.
    PATIENCE = 5.0

    def __init__(self) -> None:
        # Where each is, and until when it counts if it was not sent.
        self._where: dict[str, tuple[Hashable, float | None]] = {}
        self._ended: OrderedDict[tuple[str, Hashable], float] = OrderedDict()

    def expected(self, name: str, replica: Hashable, now: float) -> None:
        """It most probably goes there: requests that come at the same time take that into account."""
        self._where[name] = (replica, now + self.PATIENCE)

    def routed(self, name: str, replica: Hashable) -> None:
        """It was sent there."""
        if self._ended.pop((name, replica), None) is None:
            self._where[name] = (replica, None)
        elif self._where.get(name, (None,))[0] == replica:
            del self._where[name]

    def completed(self, name: str, replica: Hashable, now: float) -> None:
        """It has ended there, or was not taken."""
        where, until = self._where.get(name, (None, None))
        if where == replica and until is None:
            del self._where[name]
        else:
            self._ended[name, replica] = now + self.PATIENCE

    def lost(self, replica: Hashable) -> None:
        """The replica is gone."""
        self._where = {name: entry for name, entry in self._where.items() if entry[0] != replica}

    def by_replica(self, now: float) -> Counter[Any]:
        """How many requests each has."""
        while self._ended and next(iter(self._ended.values())) < now:
            self._ended.popitem(last=False)
        for name in [name for name, (_, until) in self._where.items() if until is not None and until < now]:
            del self._where[name]
        return Counter(replica for replica, _ in self._where.values())

    def __len__(self) -> int:
        return len(self._where)
