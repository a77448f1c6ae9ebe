"""What executors, futures and nodes show of themselves: to Python, on terminals, and
in notebooks.
"""
