# Installs kb from Debian packages, so that nothing has to be compiled. Sourced after env.sh.
# shellcheck shell=bash disable=SC2154

# Whether apt would install a package of this name.
has_candidate() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [0-9] ]]; }

# install_packages_of FOLDER: installs the newest server of which the folder has a package of kb and apt the server, with the
# program and the models, and sets PG_CONFIG.
install_packages_of() {
    local folder=$1 major architecture package files=()
    [ -d "$folder" ] || die "PACKAGES=$1 is no folder: make deb makes one"
    folder=$(realpath "$folder")
    have apt-get || die "packages are for Debian, and there is no apt-get here"
    architecture=$(dpkg --print-architecture)
    gain_root "make demo PACKAGES=$1"
    if ! has_candidate postgresql; then
        say "apt-get update"
        as_root apt-get -qq update || die "apt-get update failed"
    fi
    for major in "${KB_MAJORS[@]}"; do
        package=$(find "$folder" -maxdepth 1 -name "postgresql-$major-kb_*_$architecture.deb" | sort -V | tail -n 1)
        if [ -n "$package" ] && has_candidate "postgresql-$major"; then break; fi
        package=
    done
    [ -n "$package" ] || die "$1 has no package of kb for $architecture and a version of PostgreSQL that apt has here"
    files=("$package")
    for package in "kb_*_$architecture" "kb-models_*_all" "postgresql-$major-pgvector_*_$architecture"; do
        package=$(find "$folder" -maxdepth 1 -name "$package.deb" | sort -V | tail -n 1)
        [ -z "$package" ] || files+=("$package")
    done
    say "apt-get install ${files[*]##*/}"
    # A package of the same version may have been made again.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends --allow-downgrades --reinstall install \
        "${files[@]}" >"$root/.scratch/packages.log" 2>&1 || {
        tail -n 5 "$root/.scratch/packages.log" >&2
        die "apt-get install failed; its output is in $root/.scratch/packages.log"
    }
    PG_CONFIG=$(debian_server "$major")
    export PG_CONFIG
}
