# With what `penstock route` and `emulate` need: docker build --build-arg PARTS=gateway -t penstock:0.2.0 .
# docker build -t penstock . && docker run --rm --read-only --tmpfs /tmp penstock fit llama-3.1-70b --on mi300x,h100
FROM python:3.13-slim AS build
ARG PARTS=base
WORKDIR /source
COPY constraints/base.txt constraints/gateway.txt constraints/
RUN python -m venv /opt/penstock && /opt/penstock/bin/pip install --no-cache-dir --require-hashes --requirement constraints/$PARTS.txt
COPY . .
# A wheel without the compiled library would leave the building of one to each container.
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel . \
 && python -m zipfile --list /wheel/*.whl | grep libpenstock-linux \
 && /opt/penstock/bin/pip install --no-cache-dir --no-deps /wheel/*.whl \
 && /opt/penstock/bin/pip uninstall --yes pip

FROM python:3.13-slim
RUN useradd --system --no-create-home --uid 10001 penstock
COPY --from=build /opt/penstock /opt/penstock
# The root may be read-only. The wheel brings the compiled library; a cache, if one is needed, goes to /tmp.
ENV PATH=/opt/penstock/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER penstock
WORKDIR /work
ENTRYPOINT ["penstock"]
CMD ["--help"]
