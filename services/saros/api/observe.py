"""What the model side of the API tells Prometheus: how far it has followed the log, what it holds, what it answers."""

from prometheus_client import Counter, Gauge, Histogram

API_REDO_LAG = Gauge("saros_api_redo_lag_messages", "Messages of the redo topic that are not folded here yet.")
API_REDO_LAG_SECONDS = Gauge("saros_api_redo_lag_seconds", "Time since all that was in the redo topic was folded here.")
API_SERVABLE_SECONDS = Histogram(
    "saros_api_event_to_servable_seconds", "From the broker's time of a record's oldest event to its rows in use.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)  # fmt: skip
API_SLICE_SECONDS = Histogram(
    "saros_api_slice_seconds", "Time that queries waited for a slice of updates.",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5),
)  # fmt: skip
API_ITEMS = Gauge("saros_api_catalogue_items", "Items in the catalogue.")
API_ITEMS_UNLEARNED = Gauge("saros_api_items_unlearned", "Items in the catalogue that upserts named, and no block yet.")
API_ITEMS_LEFT_OUT = Counter("saros_api_items_left_out", "Upserts of new items that the catalogue had no room for.")
API_BYTES = Gauge("saros_api_catalogue_bytes", "Bytes of item table, catalogue and cached users.", ["part"])
API_USERS_READ = Counter("saros_api_users_read", "Users that were read from the store.")
API_CACHE_HITS = Counter("saros_api_user_cache_hits", "Users that were served from memory.")
API_STORE_ERRORS = Counter("saros_api_store_errors", "Reads that the store did not answer, and damaged users in it.")
API_STALE = Gauge("saros_api_stale", "1 while answers may be older than the log.", ["because"])
API_BOOTS = Counter("saros_api_boots", "Times the catalogue was read from the store.")
API_ANSWERS = Counter("saros_api_answers", "Answers by where they came from.", ["source"])
API_FALLBACKS = Counter("saros_api_fallbacks", "Answers without the model, by reason.", ["reason"])
