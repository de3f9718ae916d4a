"""Templates turned into text: pure, without a database, and bounded whoever wrote the template.

`source` reads a template and refuses what the engine does not offer, `engine` runs what is left under a budget,
`filters` and `international` are what a template can call, `html` makes markup harmless, `bodies` puts them
together into the contents of a channel, and `sms` and `push` measure what a channel can carry.
"""
