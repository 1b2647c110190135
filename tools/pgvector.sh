# pgvector from the sources in Debian's pool. Sourced after env.sh and pins.sh; the caller has a log, and try, which runs a command
# quietly.
# shellcheck shell=bash disable=SC2154

# build_pgvector_into SOURCE STAGE: builds it for PG_CONFIG in the directory SOURCE, and installs it beneath STAGE. Fails if no
# mirror of apt has the sources.
build_pgvector_into() {
    local archive=pgvector_$PGVECTOR.orig.tar.gz site
    mkdir -p "$1"
    # Debian keeps the source in the pool beside every release's packages: ask the mirrors apt uses.
    # shellcheck disable=SC2016
    for site in $(apt-get indextargets --format '$(SITE)' | sort -u); do
        if "${KB_ROOT:-}/usr/lib/apt/apt-helper" download-file "$site/pool/main/p/pgvector/$archive" "$1.tar.gz" \
            "SHA256:$PGVECTOR_SHA256" >>"$log" 2>&1; then break; fi
    done
    [ -f "$1.tar.gz" ] || return 1
    tar -xzf "$1.tar.gz" -C "$1" --strip-components=1
    # with_llvm=no: bitcode would need clang; OPTFLAGS="": a build for any machine of this kind. The compiler that built the
    # server may have had options that this one has not, hence plain ones.
    try make -C "$1" all install "PG_CONFIG=$PG_CONFIG" "DESTDIR=$2" OPTFLAGS= with_llvm=no \
        "CFLAGS=-O2 -fPIC -fno-strict-aliasing -fwrapv"
}
