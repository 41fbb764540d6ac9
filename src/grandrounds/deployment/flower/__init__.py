"""The runtime between real hosts: Flower carries asks and answers, with TLS and node keys. Nothing else imports flwr.

The coordinator starts Flower's SuperLink and speaks to it through Flower's Grid. A site is a SuperNode in our own
process, so its model, data and caches stay in memory between asks, no code ever comes from the coordinator, and an
exchange costs what its bytes cost: Flower's own SuperNode starts a Python process for every message.
"""
