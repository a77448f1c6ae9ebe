"""Executors inside the workers of a Dask, Ray or Spark cluster that runs already."""
