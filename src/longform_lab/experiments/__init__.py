"""Measurements that were made once for a decision, or are made for each release; each appends records."""
