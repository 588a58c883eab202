"""Producers: sends, batching, transactions, one-way sends, request and reply."""
