# Your application on Lowkiq's image. Beside it: requirements.txt with what the application needs, and its code in shop/.
#
#   docker build -t shop -f Dockerfile.app .
#   docker run --read-only --tmpfs /tmp --env REDIS_URL=redis://redis:6379/0 --stop-timeout 40 shop

ARG LOWKIQ_IMAGE=lowkiq
FROM ${LOWKIQ_IMAGE}

# Into Lowkiq's environment, which is root's and has no pip: this one is gone with the step. Versions of what Lowkiq
# needs may be changed by this.
USER 0:0
COPY requirements.txt /app/
RUN python -m venv /tmp/pip \
    && /tmp/pip/bin/python -m pip --python=/opt/lowkiq/bin/python install --no-cache-dir \
        --requirement=/app/requirements.txt \
    && rm -r /tmp/pip

# With byte code, which a read-only root couldn't keep: otherwise every start of a node compiles it.
COPY shop /app/shop
RUN ["python", "-m", "compileall", "-q", "--invalidation-mode=unchecked-hash", "/app"]

USER 10001:10001
CMD ["--nodes", "4", "--require", "shop.jobs"]
