"""Accepting: from a request to stored rows.

`submission` is what was asked for, `plan` decides which deliveries that makes, `rows` writes both down for the
database, and `accept` is the use case around them.
"""
