# The service in a container: settings come from one mounted file, secrets from mounted files or the environment.
#
#   docker build -t steerable-egress .
#   docker run --read-only --cap-drop=ALL --security-opt=no-new-privileges \
#     -v "$PWD/egress.toml:/etc/egress/egress.toml:ro" steerable-egress
#
# Nothing is opened by default: without a settings file the service ends with one line that says so, and bind stays
# on loopback, which suits a container that shares its network with the agent's. To be reached from other
# containers, the file sets bind = "0.0.0.0:8899", dangerously_bind_any = true, and a [[client]] with a token.

# A release pins this by digest (python:3.12-slim-bookworm@sha256:...): a tag can change under a build.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python -m venv /opt/egress
COPY pyproject.toml README.md LICENSE ./
COPY bin bin
COPY egress_proxy egress_proxy
COPY control_api control_api
# Compiled here, because the file system may be read-only later.
RUN /opt/egress/bin/pip install --no-cache-dir --compile .

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="steerable-egress" \
      org.opencontainers.image.description="An allow-listing egress proxy and credential broker for AI agents" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/egress /opt/egress
ENV PATH=/opt/egress/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    EGRESS_CONFIG=/etc/egress/egress.toml
# A number, so that Kubernetes can tell that it is not root; owns nothing in the image.
USER 65532:65532
WORKDIR /
EXPOSE 8899
STOPSIGNAL SIGTERM
# /healthz is on the control port, which is open only when the settings give it a token. With a fixed port, set
# EGRESS_CONTROL__PORT for the container and it is asked; otherwise the data port has to accept a connection.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["python", "-I", "-c", "\
import http.client, os\n\
port = int(os.environ.get('EGRESS_CONTROL__PORT', '0'))\n\
service = http.client.HTTPConnection('127.0.0.1', port or 8899, timeout=3)\n\
service.connect()\n\
if port: service.request('GET', '/healthz'); assert service.getresponse().status == 200\n\
"]
ENTRYPOINT ["egress-proxy"]
CMD ["serve"]
