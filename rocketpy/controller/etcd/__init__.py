"""State and leadership of several controllers in etcd (docs/failover.md)."""
