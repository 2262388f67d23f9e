"""The model's log and its fold, free of Kafka and Redis: what a record holds, which ones count, and what they make."""
