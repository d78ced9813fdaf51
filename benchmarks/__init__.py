"""Speed and memory: workloads, what they are compared with, and the harness; every ratio is taken within one run.

Run from the root of the repository: ``python -m benchmarks --list``. Nothing of this is in the wheel.
"""
