"""The HTTP service: the translator behind a queue. Nothing of a request is trusted.

app.py        the application: routers, guards and problems put together
service.py    what they all use: translator, domains, batches, writers, access; begins and ends with the process
config.py     settings of the service and its limits, from options or a TOML file
domains.py    names and the stores behind them
batching.py   texts of all requests, decoded together
writing.py    changes of stores, one at a time each, many in one publication
index_renewal.py  indexes that corrections have outgrown, brought up to date
jobs.py       memories that become domains, or are added to one, while the service goes on
memory_work.py  what a job does, in a process of its own
beside.py     processes that end with the service
metrics.py    what Prometheus reads
client.py     the service from Python, with answers.py, which need none of the others
access.py     API keys: who may do what, and how often
guard.py      what is refused before a route sees it: hosts, sites, bodies; the domain in a path
problems.py   every answer to an error
shapes.py     what requests and answers look like
documents.py  files that are translated while their senders wait
glossaries.py terms that tools send, for later requests
exchanges.py  memories that tools send or take in several steps
usage.py      characters by key
routes/       one file a resource
dialects/     what translators' tools already speak, one file each
"""
