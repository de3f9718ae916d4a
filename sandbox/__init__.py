"""A provider simulator: a real HTTP gateway and a real SMTP server, with an outbox and scripted recipients.

It runs in a process of its own (`python -m sandbox`) and imports nothing of the service.
"""
