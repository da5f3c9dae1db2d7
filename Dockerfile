# pointer serve in a container: docker build -t pointer . && docker run --rm -p 127.0.0.1:8000:8000 pointer
#
# Inside a container loopback cannot be reached from outside, so the server listens on all of *its* interfaces. What that
# opens is decided by -p: with 127.0.0.1 in front, this machine only. To let others in, give it keys and put a proxy with
# TLS in front (docs/serving.md).
FROM python:3.11-slim

WORKDIR /build
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt ".[serve]" && rm -rf /build/*

RUN useradd --create-home pointer
USER pointer
EXPOSE 8000

# Says "starting" until every model has written a text.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]

# SIGTERM, which `docker stop` sends, finishes what was taken; give it more than the ten seconds it has by default.
CMD ["pointer", "serve", "--host", "0.0.0.0"]
