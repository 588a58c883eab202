"""Choice of the replica of a broker from which a queue is read.

    route               last response or failure                     next pull goes to
    with a master       the master was suggested, or no response     the master
    with a master       a busy master suggested a slave              that slave
    with a master       a slave refused or did not answer            the master, for 30 s at least
    with a master       the master did not answer                    a slave, for 30 s; the master
    without a master    -                                            the slave with the lowest id
    without a master    that slave refused or did not answer         another slave, if there is one

Source: PullAPIWrapper.recalculatePullFromWhichNode, findBrokerAddressInSubscribe (5.4.0); to avoid
a replica that failed is specific to RocketPy.
"""

from collections.abc import Callable, Mapping
from typing import Final

from rocketpy.client.cluster.route_table import MASTER_ID
from rocketpy.errors import BrokerError, ClientError, RocketPyError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock

AVOID_MS: Final = 30_000
"""Time for which a replica is avoided after a failure, if there is another one."""
LONGEST_PAUSE_MS: Final = 5_000
"""Upper bound of the pauses while only slaves are left and they refuse to be read."""


class ReplicaChoice:
    """Chooses the replica that the pulls of one queue go to.

    Args:
        replicas: returns the present addresses of the queue's broker, by broker id.
        clock: for the time in which a replica is avoided (monotonic).
    """

    def __init__(self, replicas: Callable[[], Mapping[int, str]], clock: Clock) -> None:
        self._replicas = replicas
        self._clock = clock
        self._wanted_id = MASTER_ID
        self._avoided_id = -1
        self._avoided_until_ms = 0
        self._avoided_among: Mapping[int, str] = {}  # the replicas at that time
        self._refusal_count = 0

    def choose(self) -> int | None:
        """Return the id of the replica for the next pull, None when there is no replica."""
        replicas = self._replicas()
        if self._avoided_id >= 0:
            # A change of the route says more: a master that was away is back.
            is_over = self._clock.monotonic_ms() >= self._avoided_until_ms
            if is_over or replicas != self._avoided_among:
                self._avoided_id, self._wanted_id = -1, MASTER_ID
        wanted_id = self._wanted_id
        if wanted_id in replicas:
            return wanted_id
        # Of a slave that is gone the next one, as Apache's clients, then the lowest.
        return wanted_id + 1 if wanted_id + 1 in replicas else min(replicas, default=None)

    def suggest(self, broker_id: int) -> None:
        """Take the suggestion of a response, unless that replica is avoided."""
        self._refusal_count = 0
        if broker_id != self._avoided_id:
            self._wanted_id = broker_id

    def note_failure(self, failed_id: int, error: RocketPyError, pause_ms: int) -> int:
        """Choose the replica for the next pull after a failed one.

        Args:
            failed_id: id of the replica that was asked.
            error: of the pull.
            pause_ms: usual pause after a failure.

        Returns:
            The pause before the next pull, ms.
        """
        # What a master answers, a slave would answer as well.
        if failed_id == MASTER_ID and not isinstance(error, ClientError):
            return pause_ms
        replicas = self._replicas()
        others = replicas.keys() - {failed_id}
        if others:
            # A machine that is lost stays in the route for up to two minutes; and a master may
            # suggest a slave again and again that refuses to be read (`slaveReadEnable`).
            self._avoided_id, self._avoided_among = failed_id, dict(replicas)
            self._avoided_until_ms = self._clock.monotonic_ms() + AVOID_MS
            self._wanted_id = min(others)
        if MASTER_ID in others:
            self._refusal_count = 0
        elif isinstance(error, BrokerError) and error.code == ResponseCode.SYSTEM_BUSY:
            self._refusal_count += 1
        doubled_ms = pause_ms << min(self._refusal_count, 8)
        return max(pause_ms, min(doubled_ms, LONGEST_PAUSE_MS))
