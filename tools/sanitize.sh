#!/usr/bin/env bash
# The tests of crates/kb-kernels under AddressSanitizer: a load or store beside an array ends them.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"
need_setup

if ! compgen -G "$(rustc --print target-libdir)/*asan*" >/dev/null; then
    say "SKIPPED: this Rust comes without AddressSanitizer"
    exit 0
fi
cd "$root"
# Stable Rust has sanitizers for those who ask for them so. A target that is named keeps them out of what builds the crates.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Z sanitizer=address" CARGO_INCREMENTAL=0 cargo test --quiet --package kb-kernels --lib \
    --target "$(rustc --version --verbose | sed -n 's/^host: //p')" --target-dir "$root/.scratch/sanitize"
