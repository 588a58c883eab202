"""Controller: names the master of each broker group (docs/failover.md)."""
