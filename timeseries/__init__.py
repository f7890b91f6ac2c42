"""MEASUREMENTS TO BUCKETS AND BACK: the writable view."""
