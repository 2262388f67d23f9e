"""The oracle: a slow, obvious twin of every kernel, in plain Python, written from the specification.

Nothing here imports Saros, and nothing but tests imports this.
"""
