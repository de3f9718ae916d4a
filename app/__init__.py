"""Arauto, the service: everything but its Celery tasks (`tasks`) and its vendors (`providers`)."""
