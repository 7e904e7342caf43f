# The container that pods run: jestlab, its locked dependencies, and JAX's TPU runtime.
#
#   docker build --build-arg BASE=python:3.11-slim-bookworm@sha256:… --tag REGISTRY/jestlab .
#   docker push REGISTRY/jestlab
#
# The push prints a digest; `image: REGISTRY/jestlab@sha256:…` in the config file, or in a study's resources, names
# this very image for ever. BASE's digest, which `docker manifest inspect -v python:3.11-slim-bookworm` prints, makes
# the build one that can be made again: the tag alone will mean another base some day.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /source
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy VIRTUAL_ENV=/opt/jestlab
COPY requirements.lock requirements-uv.lock requirements-tpu.lock ./
RUN python -m pip install --quiet --no-cache-dir --require-hashes --requirement requirements-uv.lock && \
    uv venv --quiet /opt/jestlab
# libtpu is what the locked JAX says it needs.
RUN uv pip sync --quiet --no-cache --require-hashes requirements.lock requirements-tpu.lock
COPY pyproject.toml README.md LICENSE ./
COPY experiments experiments
COPY platform platform
COPY models models
COPY analysis analysis
RUN uv pip install --quiet --no-cache --no-deps --no-build-isolation .

FROM ${BASE}
COPY --from=build /opt/jestlab /opt/jestlab
RUN useradd --create-home --uid 1000 jestlab
USER 1000:1000
WORKDIR /home/jestlab
# A pod whose TPU is not found must not train on its CPU.
ENV PATH=/opt/jestlab/bin:$PATH PYTHONUNBUFFERED=1 JAX_PLATFORMS=tpu,cpu
ENTRYPOINT ["python", "-m", "jestlab.platform.worker"]
