"""What proves a kernel: its contract, workloads, rungs, judge and error budget, and the catalog."""
