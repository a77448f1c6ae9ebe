"""Clusters that end with an executor: on this machine, and on nodes that a batch system grants."""
