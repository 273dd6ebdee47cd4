# One broker; its records are in the volume /data. compose.yaml makes five of it.
FROM python:3.12-slim

COPY pyproject.toml README.md LICENSE /build/
COPY src /build/src
RUN pip install --no-cache-dir --disable-pip-version-check /build \
    && rm -r /build \
    && useradd --system --uid 10001 --no-create-home odradek \
    && install --directory --owner odradek /data

USER odradek
ENV ODRADEK_DIR=/data ODRADEK_KAFKA=:9092 ODRADEK_HTTP=:8080
VOLUME /data
EXPOSE 8080 9092
ENTRYPOINT ["odradek"]
CMD ["serve"]
