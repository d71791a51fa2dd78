# docker build -t earshot .                    CPU
# docker build -t earshot:gpu --target gpu .   with the CUDA libraries for Whisper; needs the
#                                              NVIDIA container toolkit on the host
# --build-arg EXTRAS=mcp,piper                 optional parts (`earshot extras` lists them)
# Both install through scripts/install.sh, like `make run` does.

FROM python:3.11.14-slim-bookworm AS source
WORKDIR /build
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY scripts/ scripts/
COPY core/ core/
COPY media/ media/
COPY engines/ engines/
COPY firmware_protocol/ firmware_protocol/
COPY serving/ serving/
COPY pipeline/ pipeline/
COPY signaling/ signaling/
COPY devices/ devices/
COPY web/ web/
COPY server/ server/
COPY bench/ bench/

FROM source AS installed-cpu
ARG EXTRAS=""
RUN VENV=/opt/earshot EXTRAS="$EXTRAS" GPU=0 EDITABLE=0 PIP_NO_CACHE_DIR=1 scripts/install.sh

FROM source AS installed-gpu
ARG EXTRAS=""
RUN VENV=/opt/earshot EXTRAS="$EXTRAS" GPU=1 EDITABLE=0 PIP_NO_CACHE_DIR=1 scripts/install.sh

FROM python:3.11.14-slim-bookworm AS base
RUN groupadd --system --gid 10001 earshot \
  && useradd --system --uid 10001 --gid earshot --create-home earshot \
  && install -d -o earshot -g earshot /srv/earshot /srv/earshot/models \
  && install -d -m 0700 -o earshot -g earshot /srv/earshot/var
ENV PATH=/opt/earshot/bin:$PATH PYTHONUNBUFFERED=1 EARSHOT_STATE_DIR=/srv/earshot/var
WORKDIR /srv/earshot
# models: weights you put there or fetch; var: the API key, the certificate and the devices
VOLUME ["/srv/earshot/models", "/srv/earshot/var"]
USER 10001:10001
EXPOSE 8080/tcp
# /health needs no key. Models may take a while to load the first time. With TLS the request is
# redirected to HTTPS, whose certificate need not name 127.0.0.1.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "from ssl import _create_unverified_context as unverified; from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health', timeout=4, context=unverified())"]
# Not loopback, so the server makes an API key at its first start and prints it once.
CMD ["earshot", "serve", "--host", "0.0.0.0", "--port", "8080"]

FROM base AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=installed-gpu /opt/earshot /opt/earshot

# The last target is what a plain `docker build` makes.
FROM base AS cpu
COPY --from=installed-cpu /opt/earshot /opt/earshot
