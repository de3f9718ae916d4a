"""Load, latency and kill tests, with their baselines: each run prints ratios and writes JSON.

Every measurement starts a stack of its own on free ports (`arauto up --data …`), stays on the loopback
interface, is bounded in count and time, and stops what it started.
"""
