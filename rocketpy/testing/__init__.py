"""Clusters to test against, real and simulated; see docs/simulation.md.

`rocketpy.testing.plugin`       pytest fixtures: a running cluster in a thread.
`rocketpy.testing.cluster`      the same without pytest: `LocalCluster`, `ClusterThread`.
`rocketpy.testing.faults`       faults of these brokers: frozen, slow, refusing.
`rocketpy.testing.sim_cluster`  a whole cluster in memory, in virtual time: `run_simulation`.
`rocketpy.testing.sim_network`  its network: delay, cuts, half-open peers, partitions.
`rocketpy.testing.sim_files`    its disks: power cuts, full disks, failing flushes.
`rocketpy.testing.sim_loop`     its event loop, clocks, and processes that can be killed.
"""
