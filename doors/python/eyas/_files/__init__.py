"""Files of clusters and of file systems that nodes share: open ones, folders, and those of large
values.
"""
