"""bucketd: a database server that speaks MongoDB's wire protocol and keeps time-series collections in LMDB."""
