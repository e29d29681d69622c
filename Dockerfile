# Builds and tests like .ci/run, and ends in a slim image with `llmrt` and `plugins/*.so`.
#   docker build -t llmrt . && docker run --rm -it llmrt run
FROM rust:1.95-bookworm AS build
RUN rustup component add rustfmt clippy llvm-tools
WORKDIR /src
COPY . .
RUN bash .ci/run
RUN cargo build --release --locked -p llmrt-cli -p llmrt-cpu-so -p llmrt-null -p llmrt-sim

FROM debian:bookworm-slim
COPY --from=build /src/target/release/llmrt /usr/local/bin/llmrt
COPY --from=build /src/target/release/libllmrt_cpu.so /src/target/release/libllmrt_null.so \
  /src/target/release/libllmrt_sim.so /usr/local/lib/llmrt/plugins/
COPY --from=build /src/LICENSE-MIT /src/LICENSE-APACHE /usr/share/doc/llmrt/
ENTRYPOINT ["llmrt"]
CMD ["--help"]
