# One image for every role; docker-compose.yml gives each service its command.
FROM python:3.11.14-slim-bookworm AS build
# For the compiled paths; without a compiler RocketPy would be pure, and slower.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY rocketpy rocketpy
COPY pyspark_rocketmq pyspark_rocketmq
COPY pyspark_rocketmq_store pyspark_rocketmq_store
# What cannot be compiled ends the build instead of making a pure image that nobody asked for.
ENV ROCKETPY_COMPILED=1
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

# Of the profile `ha` of docker-compose.yml: state of the controllers. On the same base, so that no other one is fetched.
FROM python:3.11.14-slim-bookworm AS etcd
RUN apt-get update && apt-get install --yes --no-install-recommends etcd-server etcd-client && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /data rocketpy && install -d -o rocketpy /data
USER rocketpy
VOLUME /data
EXPOSE 2379 2380
STOPSIGNAL SIGTERM
CMD ["etcd", "--data-dir", "/data/etcd"]

FROM python:3.11.14-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data rocketpy && install -d -o rocketpy /data
COPY LICENSE NOTICE /usr/share/doc/rocketpy/
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels rocketpy-mq && rm -rf /wheels
USER rocketpy
VOLUME /data
EXPOSE 9876 10911
STOPSIGNAL SIGTERM
# Of the command below; a service with another command replaces it.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["rocketpy", "cluster", "ping", "--ready", "--all", "-n", "127.0.0.1:9876"]
CMD ["rocketpy", "standalone", "--data", "/data", "--host", "0.0.0.0"]
