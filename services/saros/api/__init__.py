"""Serving: what is between the log, the store and an answer, and the HTTP around it."""
