"""etcd in memory: keys, transactions and leases, as the JSON gateway answers."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rocketpy.controller.etcd.client import EtcdError


@dataclass
class Entry:
    value: str
    create_revision: int
    mod_revision: int
    lease: str | None


class EtcdServer:
    """The whole cluster of etcd.

    Args:
        now_ms: its clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.revision = 1
        self.entries: dict[bytes, Entry] = {}
        self._leases: dict[str, tuple[int, int]] = {}  # TTL and end
        self._last_lease = 7_000

    def call(self, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self._expire()
        operations = {
            "lease/grant": self._grant,
            "lease/keepalive": self._keep,
            "lease/revoke": self._revoke,
            "kv/range": self._range,
            "kv/txn": self._txn,
        }
        return operations[method](request)

    def _expire(self) -> None:
        for lease in [key for key, (_, end) in self._leases.items() if self._now_ms() >= end]:
            self._end(lease)

    def _end(self, lease: str) -> None:
        self._leases.pop(lease, None)
        for key in [key for key, each in self.entries.items() if each.lease == lease]:
            del self.entries[key]
            self.revision += 1

    def _grant(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._last_lease += 1
        ttl_ms = int(request["TTL"]) * 1_000
        self._leases[str(self._last_lease)] = (ttl_ms, self._now_ms() + ttl_ms)
        return {"ID": str(self._last_lease), "TTL": request["TTL"]}

    def _keep(self, request: Mapping[str, Any]) -> dict[str, Any]:
        lease = request["ID"]
        if lease not in self._leases:
            return {"result": {"ID": lease}}
        ttl_ms, _ = self._leases[lease]
        self._leases[lease] = (ttl_ms, self._now_ms() + ttl_ms)
        return {"result": {"ID": lease, "TTL": str(ttl_ms // 1_000)}}

    def _revoke(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["ID"] not in self._leases:
            raise EtcdError("status 404: requested lease not found")
        self._end(request["ID"])
        return {}

    def _range(self, request: Mapping[str, Any]) -> dict[str, Any]:
        first = base64.b64decode(request["key"])
        end = base64.b64decode(request.get("rangeEnd", ""))
        found = [
            {"key": base64.b64encode(key).decode(), "value": each.value,
             "create_revision": str(each.create_revision),
             "mod_revision": str(each.mod_revision)}
            for key, each in sorted(self.entries.items())
            if key == first or (end and first <= key < end)
        ]  # fmt: skip
        return {"header": {"revision": str(self.revision)}, **({"kvs": found} if found else {})}

    def _txn(self, request: Mapping[str, Any]) -> dict[str, Any]:
        for each in request["compare"]:
            assert each["result"] == "EQUAL"
            entry = self.entries.get(base64.b64decode(each["key"]))
            if each["target"] == "CREATE":
                found, expected = entry and entry.create_revision, each["createRevision"]
            else:
                assert each["target"] == "MOD"
                found, expected = entry and entry.mod_revision, each["modRevision"]
            if (found or 0) != int(expected):
                reads = [
                    {"response_range": self._range(one["requestRange"])}
                    for one in request.get("failure", ())
                ]
                return {"header": {"revision": str(self.revision)}, "responses": reads}
        puts = [each["requestPut"] for each in request["success"] if "requestPut" in each]
        if any(each["lease"] not in self._leases for each in puts if "lease" in each):
            raise EtcdError("status 404: requested lease not found")
        self.revision += 1
        for each in request["success"]:
            self._apply(each)
        return {"header": {"revision": str(self.revision)}, "succeeded": True}

    def _apply(self, operation: Mapping[str, Any]) -> None:
        if "requestDeleteRange" in operation:
            self.entries.pop(base64.b64decode(operation["requestDeleteRange"]["key"]), None)
            return
        put = operation["requestPut"]
        key = base64.b64decode(put["key"])
        old = self.entries.get(key)
        created = self.revision if old is None else old.create_revision
        self.entries[key] = Entry(put["value"], created, self.revision, put.get("lease"))


class FakeEtcd:
    """Client of `EtcdServer`, which a test can cut off.

    Attributes:
        is_cut_off: requests are not executed.
        loses_answers: requests are executed, and not answered.
        repeats: the answer to a request is lost, and another member executes it again.
        requests: methods and requests of all calls.
    """

    def __init__(
        self, server: EtcdServer, pause: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Use a cluster; `pause` is awaited on the way there and back."""
        self._server = server
        self._pause = pause
        self.is_cut_off = False
        self.loses_answers = False
        self.repeats = False
        self.requests: list[tuple[str, Mapping[str, Any]]] = []

    async def call(self, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_cut_off:
            raise EtcdError("cut off")
        if self._pause is not None:
            await self._pause()
        self.requests.append((method, request))
        answer = self._server.call(method, request)
        if self.repeats:
            answer = self._server.call(method, request)
        if self._pause is not None:
            await self._pause()
        if self.loses_answers:
            raise EtcdError("no answer")
        return answer

    async def close(self) -> None:
        """Nothing is open."""
