#!/usr/bin/env bash
# The tests of src/kernels/int8, which needs no crate, under AddressSanitizer: a load or store beside an array ends them.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"

if ! compgen -G "$(rustc --print target-libdir)/*asan*" >/dev/null; then
    say "SKIPPED: this Rust comes without AddressSanitizer"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
# Stable Rust has sanitizers for those who ask for them so.
RUSTC_BOOTSTRAP=1 rustc --edition 2024 --test -C opt-level=1 -C debuginfo=1 -Z sanitizer=address \
    -o "$work/int8" "$root/src/kernels/int8/mod.rs"
"$work/int8" --quiet
