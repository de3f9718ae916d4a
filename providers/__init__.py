"""Adapters to the vendors that carry a message. They import nothing of the service."""
