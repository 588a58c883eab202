"""Delivery of messages to handlers, concurrent or in order, and redelivery."""
