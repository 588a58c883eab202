"""Programs of etcd: those beside the one that ETCD names, in PATH, or those of `make etcd`."""

import os
import shutil
from pathlib import Path


def etcd_program(name: str) -> str | None:
    """Return the path of `etcd` or `etcdctl`; None where there is none."""
    named = os.environ.get("ETCD")
    if named is not None:
        return shutil.which(name, path=str(Path(named).parent))
    cache = os.environ.get("PEER_CACHE") or str(Path.home() / ".cache" / "rocketpy-peer")
    return shutil.which(name) or shutil.which(name, path=f"{cache}/etcd")
