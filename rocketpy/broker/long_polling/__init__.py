"""Suspended requests that wait for messages, and the queue that resumes them."""
