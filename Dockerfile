# logserver as a container: docs/deploy.md shows how to build and run it.
# The wheel is built in the image, so its compiled modules fit the platform of the image.
ARG PYTHON=3.13

# The full image has a C compiler. Only /opt/logserver gets into the result.
FROM python:${PYTHON}-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY requirements.lock ./
# The lock also pins the build tools, which are installed here and not in the result.
RUN pip download --quiet --require-hashes --only-binary :all: --dest /locked -r requirements.lock \
 && pip install --quiet --require-hashes --no-index --find-links /locked -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY api api
COPY logserver logserver
COPY storage storage
COPY docs docs
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /dist . \
 && python -m venv --without-pip /opt/logserver \
 && pip --python /opt/logserver/bin/python install --quiet --no-index --find-links /locked \
      "$(echo /dist/duolog-*.whl)[re2]"

FROM python:${PYTHON}-slim-trixie
LABEL org.opencontainers.image.title="logserver" \
      org.opencontainers.image.description="A log server for the files of Kafka and RocketMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/logserver /opt/logserver
# Python's own modules have no bytecode in the image, and a container with a read-only root cannot save it: import
# the server once. The store is a folder inside the volume: copies of cut bytes are written next to it.
RUN /opt/logserver/bin/python -P -c "import api.server, logserver.__main__" \
 && groupadd --gid 10001 logserver \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/logserver --shell /usr/sbin/nologin logserver \
 && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/logserver
ENV PATH=/opt/logserver/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    LOGSERVER_DATA=/var/lib/logserver/data \
    LOGSERVER_LISTEN=0.0.0.0:8082 \
    LOGSERVER_URL=http://127.0.0.1:8082
USER 10001:10001
WORKDIR /var/lib/logserver
VOLUME /var/lib/logserver
EXPOSE 8082
# LOGSERVER_URL is also the server that commands in the container use: with TLS set it to https://NAME:8082.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --start-interval=1s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['LOGSERVER_URL'] + '/readyz', timeout=4)"]
# On 0.0.0.0 the server starts only with LOGSERVER_TOKEN_FILE, or with LOGSERVER_INSECURE=true.
ENTRYPOINT ["logserver"]
CMD ["serve"]
