"""`pointer serve`: texts over HTTP, for many callers at once.

keys.py           the keys that open the API
limits.py         what one request may ask for, and how a server is set up
batching.py       many callers, one model: their texts grow together, stage by stage, in one thread
service.py        the models that are served, and whether they are ready
schemas.py        what requests and answers look like
failures.py       the one shape of every error
metrics.py        what is counted for Prometheus
guard.py          around every request: security headers, the log line, the last net for errors
app.py            the endpoints
documentation.py  the page that lists them
server.py         listening, several processes, an orderly end
page/             the page for people
"""
