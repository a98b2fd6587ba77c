"""The HTTP service: the translator behind a queue. Nothing of a request is trusted.

service.py        what all of it uses: translator, domains, batches, writers, access
config.py         settings of the service and its limits, from options or a TOML file
http/             connections, checks, and the shapes of requests and answers
routes/           one file for each resource
dialects/         the protocols of translators' tools, one file each
scheduling/       which texts are decoded when
access.py         API keys: roles, domains and rates
problems.py       the answers to errors
domains.py        names and the stores behind them
writing.py        changes stores, one change at a time for each, several in one publication
index_renewal.py  updates indexes after many corrections
background.py     work that goes on after the request that sent it: memories and documents
jobs.py           turns memories into domains, or adds them to domains, in the background
job_records.py    jobs on disk, from which they resume
memory_work.py    the work of a job, in its own process
child_process.py  processes that never live longer than the service
documents.py      translates files in the background
glossaries.py     keeps glossaries that tools send
corrections.py    what domains have learned, so that it can be undone
exchanges.py      memories that tools send or download in several steps
usage.py          counts characters by key
data_directory.py the service's directory, and the records in it
scratch.py        files for a while
metrics.py        metrics for Prometheus
client.py         the client for Python; it and answers.py need none of the others
"""
