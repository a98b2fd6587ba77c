"""HTTP: from a connection to a request that a route can trust, and from an answer to bytes.

running.py         runs the service, and ends it
connections.py     slow clients, many connections, unread answers
app.py             the application, assembled from routers, guards and problems
guard.py           checks before the routes: hosts, sites, bodies, the domain in the path
refusals.py        answers with an error wait for a client that has had many
requests.py        from a request to its caller, domain and texts
request_shapes.py  the schemas of requests
setting_shapes.py  the settings of a translation in requests
answer_shapes.py   the schemas of answers
examples.py        examples for the OpenAPI
"""
