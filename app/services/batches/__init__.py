"""Batches: one message to many people.

`accept` stores what was asked for, `upload` takes a list in pieces, `manage` shows, pauses and calls off,
`reports` says who got it and who did not. `expand` makes the notifications in the background, chunk by chunk:
`sources` reads the next recipients, `chunks` writes them down, `canary` judges the trial.
"""
