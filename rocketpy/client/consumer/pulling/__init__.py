"""Pulling of assigned queues: pull loops and process queues."""
