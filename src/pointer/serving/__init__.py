"""`pointer serve`: texts over HTTP, for many callers at once.

keys.py       the keys that open the API
limits.py     what one request may ask for, and how a server is set up
quota.py      what each key may still spend
batching.py   many callers, one model: their texts grow together, stage by stage, in one thread
service.py    the models that are served, and whether they are ready
schemas.py    what requests and answers look like
failures.py   which refusal answers which error
metrics.py    what is counted for Prometheus
guard.py      around every request: the log line, the counts, the last net for errors; the keys
app.py        the endpoints
server.py     listening, several processes, an orderly end
page/         the page for people

What it shares with the server of a study (refusals, the shield around both, listening) is in `pointer.web`.
"""
