"""The servers that `arauto up` brings along, all from packages, and their supervisor.

Nothing here knows the service's insides: it imports only `app.settings` and `app.queues`, and speaks to the
rest by command line and environment.
"""
