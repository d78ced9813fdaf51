"""What ops of message passing share: see README.md in this folder."""

from gssc.ops.context import EdgePlan, edge_plan

__all__ = ["EdgePlan", "edge_plan"]
