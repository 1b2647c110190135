#!/usr/bin/env bash
# What cargo calls in place of rustc for the crates of this workspace, under tools/fuzz.sh: libFuzzer is told what code an
# input reaches. As cargo-fuzz does it, but for the address sanitizer, which a stable compiler does not have.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
