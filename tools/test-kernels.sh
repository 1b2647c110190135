#!/usr/bin/env bash
# The whole suite under each instruction set that this machine has, on one core and on two.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup
cd "$root"

sets=$(cargo test --quiet -p kb-kernels --lib every_instruction_set -- --nocapture |
    sed -n 's/^[.]*instruction set //p')
[ -n "$sets" ] || die "the tests name no instruction set"
failed=
for set in $sets; do
    for cores in 0 0-1; do
        say "instruction set $set, cores $cores"
        KB_INSTRUCTION_SET=$set taskset --cpu-list "$cores" tools/test.sh || failed="$failed $set/$cores"
    done
done
[ -z "$failed" ] || die "failed with:$failed"
