# Your application on Lowkiq's image. Beside it: requirements.txt with what the application needs, and its code in shop/.
#
#   docker build -t shop -f Dockerfile.app .
#   docker run --read-only --tmpfs /tmp --env REDIS_URL=redis://redis:6379/0 --stop-timeout 40 shop

ARG LOWKIQ_IMAGE=lowkiq
FROM ${LOWKIQ_IMAGE}

# Into Lowkiq's environment, which is root's; versions of what Lowkiq needs may be changed by this.
USER 0:0
COPY requirements.txt /app/
RUN ["python", "-m", "pip", "install", "--no-cache-dir", "--requirement=/app/requirements.txt"]
USER 10001:10001

COPY shop /app/shop
CMD ["--nodes", "4", "--require", "shop.jobs"]
