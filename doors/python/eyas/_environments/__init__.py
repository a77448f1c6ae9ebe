"""How workers are started: in the environment of the client, or in one that is packed and goes
along.
"""
