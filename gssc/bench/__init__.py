"""Workloads and harness for speed and memory."""
