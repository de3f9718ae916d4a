"""The worker: load ▶ check ▶ render ▶ breaker ▶ rate ▶ claim ▶ guard ▶ fence ▶ send ▶ record ▶ countdown.

A Celery task only parks ids on the lane of their priority and channel, and returns. Three threads a lane take them
on: `prepare` loads, looks whether they are still wanted, and renders, `gate` waits for the breaker and for tokens,
`claim` makes rows SENDING and takes the guard. One event loop a process makes the calls, one recorder writes their
outcomes in batches. Ids that wait are unclaimed: a killed worker loses them from its memory, they are QUEUED rows,
and rescue brings them back.
"""
