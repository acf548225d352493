# Lowkiq's image: the supervisor with its nodes, the web view, and `lowkiq`. Your application comes on top of it, see
# examples/Dockerfile.app.
#
#   docker build -t lowkiq .
#   docker build -t lowkiq --build-arg PYTHON_IMAGE=python:3.14-slim-trixie .

# Any image that has Python 3.11 to 3.14 with venv, and useradd: Debian's, Ubuntu's, or a mirror of yours by digest.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm


# --- The wheel of this checkout ---
FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /build
RUN ["python3", "-m", "venv", "/opt/build"]
COPY requirements-build.lock ./
RUN ["/opt/build/bin/python", "-m", "pip", "install", "--no-cache-dir", "--require-hashes", "--only-binary=:all:", \
    "--requirement=requirements-build.lock"]
COPY pyproject.toml README.md LICENSE ./
COPY lowkiq lowkiq
COPY supervisor supervisor
COPY pytest_lowkiq pytest_lowkiq
# Without isolation, as that would fetch the build's own needs anew, and without hashes.
RUN ["/opt/build/bin/python", "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", \
    "--wheel-dir=/dist", "."]


# --- An environment with that wheel and what it needs: nothing built, nothing unknown, and nothing that installs ---
FROM ${PYTHON_IMAGE} AS environment
WORKDIR /build
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/lowkiq
COPY requirements.lock ./
RUN ["/opt/build/bin/python", "-m", "pip", "--python=/opt/lowkiq/bin/python", "install", "--no-cache-dir", \
    "--no-compile", "--require-hashes", "--only-binary=:all:", "--requirement=requirements.lock"]
COPY --from=wheel /dist /dist
RUN ["/opt/build/bin/python", "-m", "pip", "--python=/opt/lowkiq/bin/python", "install", "--no-cache-dir", \
    "--no-compile", "--no-deps", "--no-index", "--find-links=/dist", "lowkiq"]
# Byte code that goes by no date, so that it is the same in every build and good wherever it is copied. One process
# and one seed, as both change how constants are written.
RUN find /opt/lowkiq -type d -name tests -prune -exec rm -r {} + \
    && PYTHONHASHSEED=0 /opt/lowkiq/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/lowkiq/lib


# --- The image ---
FROM ${PYTHON_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Lowkiq for Python" \
    org.opencontainers.image.description="Ordered background jobs on Redis" \
    org.opencontainers.image.licenses="MIT" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
# The date of what is made here; given to the build, two of the same sources are equal.
ARG SOURCE_DATE_EPOCH
# A number that volumes and Kubernetes' runAsUser can rely on. Only the state directory is the user's to write.
RUN groupadd --gid 10001 lowkiq \
    && useradd --uid 10001 --gid lowkiq --home-dir /var/lib/lowkiq --no-create-home --no-log-init \
        --shell /usr/sbin/nologin lowkiq \
    && install --directory --owner=lowkiq --group=lowkiq --mode=0700 /var/lib/lowkiq
# The base's standard library has no byte code in python:*-slim, so each probe would compile what it imports. What a
# server has no use for is left out. Last goes what installs packages: that is for builds.
RUN export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 \
    && library=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
    && python3 -m compileall -q --invalidation-mode unchecked-hash \
        -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip|(site|dist)-packages|config-[^/]*)/' "$library" \
    && rm -rf "$library"/site-packages/pip* "$library"/site-packages/setuptools* "$library"/site-packages/wheel* \
        "$library"/site-packages/_distutils_hack "$library"/site-packages/distutils-precedence.pth \
        /usr/local/bin/pip* /usr/local/bin/wheel
COPY --from=environment /opt/lowkiq /opt/lowkiq
# Unbuffered, so that what jobs print is in the container's log at once. No more byte code: the root may be read-only.
# Two arenas of memory instead of one for each thread, which only grow a node.
ENV PATH=/opt/lowkiq/bin:$PATH \
    LOWKIQ_STATE_DIR=/var/lib/lowkiq \
    MALLOC_ARENA_MAX=2 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
# Your application's place: the current directory is importable.
WORKDIR /app
# By number: Kubernetes' runAsNonRoot can't look names up.
USER 10001:10001
# Writable also where the root isn't (docker run --read-only).
VOLUME ["/var/lib/lowkiq"]
# TERM drains; `docker stop` must wait longer than the drain of 25 s (--time 40).
STOPSIGNAL SIGTERM
# Nodes have 120 s to boot. Any trouble is 1: Docker keeps other codes for itself.
HEALTHCHECK --interval=30s --timeout=10s --start-period=150s --retries=3 \
    CMD ["sh", "-c", "lowkiq-supervisor ping --ready || exit 1"]
# Process 1 itself: it reaps what jobs leave behind, and gives nodes the signals that they should have.
ENTRYPOINT ["lowkiq-supervisor"]
CMD ["--help"]
