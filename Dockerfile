# The server alone: set DATABASE_URL. Build with `--build-arg POSTGRES=yes` to try it out with a
# Postgres inside the container.

ARG BUILD_IMAGE=docker.io/library/rust:1.95-slim-bookworm
ARG RUNTIME_IMAGE=docker.io/library/debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
# jemalloc is built with make.
RUN apt-get update && apt-get install -y --no-install-recommends make
WORKDIR /build
# Dependencies first, with empty sources: this layer is cached until Cargo.lock changes.
COPY .cargo .cargo
COPY Cargo.toml Cargo.lock ./
RUN mkdir -p src tests/it tests/trials tests/scale tests/bench \
    && echo 'fn main() {}' \
        | tee src/main.rs tests/it/main.rs tests/trials/main.rs tests/scale/main.rs \
            tests/bench/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked
COPY .sqlx .sqlx
COPY config config
COPY migrations migrations
COPY src src
# Copied files may be older than what was built from the empty ones.
RUN touch src/main.rs src/lib.rs && cargo build --release --locked

FROM ${RUNTIME_IMAGE}
ARG POSTGRES=no
# Debian would create a database with the package; gensvc creates its own.
RUN if [ "$POSTGRES" = yes ]; then \
        mkdir -p /etc/postgresql-common/createcluster.d \
        && echo create_main_cluster = false >/etc/postgresql-common/createcluster.d/none.conf \
        && apt-get update \
        && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends postgresql \
        && rm -rf /var/lib/apt/lists/*; \
    fi \
    && useradd --system --uid 10001 --home-dir /data --no-create-home gensvc \
    && install -d -o gensvc -g gensvc -m 700 /data
# CA certificates for calls to providers.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /build/target/release/gensvc /usr/local/bin/gensvc
ENV GENSVC_BIND=0.0.0.0:8080 GENSVC_DATA_DIR=/data GENSVC_LOG_FORMAT=json
USER gensvc
WORKDIR /data
VOLUME /data
EXPOSE 8080
# The image has no curl; bash can send the request.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/${GENSVC_BIND##*:} && printf 'GET /health HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ $status = 200 ]"]
ENTRYPOINT ["gensvc"]
