# docker build -t bevy . && docker run --rm -v "$PWD/models:/models:ro" bevy run -m /models/x.gguf
# The first stage compiles; the second holds the program and the libraries it needs, nothing else.
FROM debian:forky AS build
RUN echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/90bevy
COPY tools/packages.txt /packages.txt
RUN apt-get update \
    && sed 's/#.*//' /packages.txt | awk '$1 == "build" { print $2 }' \
        | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y --no-install-recommends \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /bevy
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY src src
RUN cmake --preset release -DBEVY_WERROR=OFF -DBEVY_TESTS=OFF \
    && ninja -C build/release bevy \
    && strip --strip-debug -o /usr/local/bin/bevy build/release/src/bevy

FROM debian:forky-slim
RUN echo 'Acquire::Check-Valid-Until "false";' >/etc/apt/apt.conf.d/90bevy \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        libggml0 libllama0 liburing2 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/bevy /usr/local/bin/bevy
ENTRYPOINT ["bevy"]
CMD ["--help"]
