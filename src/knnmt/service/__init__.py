"""The HTTP service: the translator behind a queue. Nothing of a request is trusted.

app.py        the application, assembled from routers, guards and problems
service.py    what all of them use: translator, domains, batches, writers, access
config.py     settings of the service and its limits, from options or a TOML file
domains.py    names and the stores behind them
batching.py   decodes the texts of all requests together
fair_queue.py the order in which clients take turns
shares.py     how much of something a client may hold at once
writing.py    changes stores, one change at a time for each, several in one publication
index_renewal.py  updates indexes after many corrections
jobs.py       turns memories into domains, or adds them to domains, in the background
job_records.py  jobs on disk, from which they resume
memory_work.py  the work of a job, in its own process
background.py work that goes on after its request: memories and documents
child_process.py  processes that end when the service ends
metrics.py    metrics for Prometheus
client.py     the client for Python; it and answers.py need none of the others
access.py     API keys: roles, domains and rates
guard.py      checks before the routes: hosts, sites, bodies, the domain in the path
problems.py   the answers to errors
request_shapes.py  the schemas of requests
answer_shapes.py  the schemas of answers
documents.py  translates files in the background
glossaries.py keeps glossaries that tools send
exchanges.py  memories that tools send or download in several steps
usage.py      counts characters by key
routes/       one file for each resource
dialects/     the protocols of translators' tools, one file each
"""
