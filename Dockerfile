# Seqloom in a container, for the CPU unless the package index says otherwise.
#
#   docker build -t seqloom .
#   docker run --rm -v "$PWD/runs:/seqloom/runs" seqloom demo
#   docker run --rm -v "$PWD/data:/seqloom/data:ro" -v "$PWD/runs:/seqloom/runs" --user "$(id -u):$(id -g)" \
#       seqloom train translate data/words.tsv --output runs/words
#
# Build arguments:
#   EXTRAS          optional parts, as in pip install 'seqloom[…]' (default: demo,plots,zh)
#   UID             of the user that commands run as (default: 1000)
#   PIP_INDEX_URL   another package index, for example one whose torch is built for the CPU: the plain one brings several
#                   gigabytes of CUDA libraries along

FROM python:3.11-slim AS build
ARG PIP_INDEX_URL
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY seqloom seqloom
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ARG PIP_INDEX_URL
ARG EXTRAS=demo,plots,zh
ARG UID=1000
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /tmp/wheels
RUN pip install --no-cache-dir -c /tmp/constraints.txt "$(ls /tmp/wheels/*.whl)[${EXTRAS}]"
# Writable for anybody: with --user the container's user is whoever owns the mounted folders.
RUN useradd --create-home --uid "${UID}" seqloom \
    && mkdir -p /seqloom/data /seqloom/runs /seqloom/cache \
    && chmod 1777 /seqloom /seqloom/data /seqloom/runs /seqloom/cache
ENV SEQLOOM_CACHE=/seqloom/cache PYTHONUNBUFFERED=1
WORKDIR /seqloom
VOLUME ["/seqloom/data", "/seqloom/runs", "/seqloom/cache"]
USER ${UID}
ENTRYPOINT ["seqloom"]
CMD ["--help"]
