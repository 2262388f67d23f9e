"""The trainer: events in, a model out, each event counted once."""
