# The container that the jobs of clusters run: a worker of jestlab, its locked dependencies, and JAX's runtime.
#
#   docker build --build-arg BASE=python:3.11-slim-bookworm@sha256:… --tag REGISTRY/jestlab .
#   docker push REGISTRY/jestlab
#
# The push prints a digest; `image: REGISTRY/jestlab@sha256:…` in the config file, or in a study's resources, names
# this very image for ever. BASE's digest, which `docker manifest inspect -v python:3.11-slim-bookworm` prints, makes
# the build one that can be made again: the tag alone will mean another base some day.
#
# ACCELERATOR is tpu, cuda (for drivers of CUDA 12) or cpu. BASE needs Python 3.11 or newer with its module venv.
# Two secrets, both optional, tell the build how this machine reaches a package index, and are not kept:
# `--secret id=machine,src=FILE`, lines such as PIP_INDEX_URL=… and UV_DEFAULT_INDEX=…, and
# `--secret id=certificates,src=FILE`, the certificate authorities to trust instead of the usual ones.
ARG BASE=python:3.11-slim-bookworm
ARG ACCELERATOR=tpu

FROM ${BASE} AS dependencies
WORKDIR /source
# The installed files get other times in the layers: bytecode that is bound to them would be compiled again.
ENV UV_COMPILE_BYTECODE=1 PYC_INVALIDATION_MODE=UNCHECKED_HASH UV_LINK_MODE=copy UV_NO_CACHE=1
COPY requirements-uv.lock ./
RUN --mount=type=secret,id=machine --mount=type=secret,id=certificates \
    printf '%s\n' '#!/bin/sh' 'set -a' \
      'if test -e /run/secrets/machine; then . /run/secrets/machine; fi' \
      'if test -e /run/secrets/certificates; then SSL_CERT_FILE=/run/secrets/certificates; PIP_CERT=$SSL_CERT_FILE; fi' \
      'exec "$@"' > /opt/with-machine && \
    chmod +x /opt/with-machine && \
    python3 -m venv /opt/uv && \
    /opt/with-machine /opt/uv/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
      --require-hashes --requirement requirements-uv.lock && \
    /opt/uv/bin/uv --quiet venv --python python3 /opt/jestlab
COPY requirements-worker.lock ./
# Workers test no packages, compile nothing against them, and link with nothing.
RUN --mount=type=secret,id=machine --mount=type=secret,id=certificates \
    /opt/with-machine /opt/uv/bin/uv --quiet pip sync --python /opt/jestlab --require-hashes requirements-worker.lock && \
    find /opt/jestlab -type d \( -name tests -o -path '*/pyarrow/include' -o -path '*/numpy/_core/include' \) \
      -prune -exec rm -r {} + && \
    find /opt/jestlab -type f \( -name '*.a' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pyi' \) -delete
ARG ACCELERATOR
COPY requirements-tpu.lock requirements-cuda.lock ./
# What the locked JAX says it needs besides.
RUN --mount=type=secret,id=machine --mount=type=secret,id=certificates \
    mkdir /opt/accelerator && \
    case "${ACCELERATOR}" in \
      cpu) ;; \
      tpu | cuda) /opt/with-machine /opt/uv/bin/uv --quiet pip install --python /opt/jestlab --prefix /opt/accelerator \
        --no-deps --require-hashes --requirement "requirements-${ACCELERATOR}.lock" ;; \
      *) echo "ACCELERATOR=${ACCELERATOR}: expected tpu, cuda or cpu" >&2; exit 1 ;; \
    esac

FROM dependencies AS sources
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY experiments experiments
COPY platform platform
COPY models models
COPY analysis analysis
RUN --mount=type=secret,id=machine --mount=type=secret,id=certificates \
    /opt/with-machine /opt/uv/bin/uv --quiet pip install --python /opt/jestlab --prefix /opt/sources \
      --no-deps --build-constraint requirements.lock .

FROM ${BASE} AS system
RUN useradd --create-home --uid 1000 jestlab && \
    rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/python-wheels \
      /var/cache/* /var/lib/apt/lists/* /var/log/* /root/.cache && \
    find /usr/lib /usr/local/lib -type d \( -name ensurepip -o -name pip -o -name 'pip-*' -o -name 'setuptools*' \
      -o -name pkg_resources -o -name idlelib -o -name tkinter \) -prune -exec rm -r {} +

# The files alone: neither what was removed from the base, nor its variables.
FROM scratch AS worker
COPY --from=system / /
COPY --from=dependencies /opt/jestlab /opt/jestlab
COPY --from=dependencies /opt/accelerator /opt/jestlab
COPY --from=sources /opt/sources /opt/jestlab
USER 1000:1000
WORKDIR /home/jestlab
ENV PATH=/opt/jestlab/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1
ENTRYPOINT ["python", "-m", "jestlab.platform.worker"]

# A pod whose accelerator is not found must not train on its CPU. JAX fails where TPUs are missing, whatever else is
# listed; where GPUs are missing it goes on with the next of the list, so that there must be none.
FROM worker AS worker-tpu
ENV JAX_PLATFORMS=tpu,cpu
FROM worker AS worker-cuda
ENV JAX_PLATFORMS=cuda
FROM worker AS worker-cpu
ENV JAX_PLATFORMS=cpu
FROM worker-${ACCELERATOR}
