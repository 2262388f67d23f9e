"""The HTTP service: events in, recommendations out."""
