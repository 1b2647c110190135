#!/usr/bin/env bash
# Fills a directory with 300 real documents of 18 formats, from the documentation and examples in Debian's packages (28 MB), whose
# licences are free and which are not installed.
# tools/documents.sh DIRECTORY [all]; all: however large and however many, for the benchmark.
set -euo pipefail
# shellcheck source=tools/env.sh
. "$(dirname "$0")/env.sh"

# The Python of this Debian, whose tests have messages.
python=$({ apt-cache depends python3 2>/dev/null || true; } | sed -nE 's/^ *Depends: (python3\.[0-9]+)$/\1/p' | head -n 1)

# A line for each kind: the extension that its documents get, their package, the most of them (the smallest are taken), and their
# path, an expression as find's -regex has it; a .gz may follow. Those of which there are 0 are for the benchmark.
KINDS="pdf simh 25 .*\.pdf
pdf r-cran-tm 2 .*\.pdf
docx r-cran-officer 4 .*\.docx
docx python3-docx 1 .*\.docx
pptx r-cran-officer 5 .*\.pptx
xlsx r-cran-openxlsx 11 .*\.xlsx
xlsx r-cran-readxl 4 .*\.xlsx
xls r-cran-readxl 4 .*\.xls
xls r-cran-rio 1 .*\.xls
odt live-manual-odf 1 .*\.en\.odt
odt python-odf-doc 1 .*\.odt
odt writer2latex-manual 1 .*\.odt
ods python-odf-doc 2 .*\.ods
ods r-cran-rio 1 .*\.ods
epub live-manual-epub 1 .*\.en\.epub
epub developers-reference 1 .*\.epub
rtf librtf-writer-perl 1 .*\.rtf
eml lib${python:-python3}-testsuite 40 .*/test_email/data/.*\.txt
csv r-cran-readr 8 .*\.csv
csv r-cran-rio 1 .*\.csv
json nodejs-doc 20 .*/api/[n-z][^/]*\.json
md nodejs-doc 20 .*/api/[a-m][^/]*\.md
xml r-cran-tm 37 .*/texts/.*\.xml
rst debian-policy 20 .*/_sources/.*\.rst\.txt
adoc git-doc 20 .*/git-[a-m][^/]*\.\(txt\|adoc\)
html git-doc 20 .*/git-[n-z][^/]*\.html
html debian-policy 10 .*/perl-policy\.html/.*\.html
html maint-guide 11 .*\.en\.html
txt git-doc 16 .*/howto/.*\.txt
txt debian-policy 6 .*/debian-policy/[^/]*\.txt
txt r-cran-readr 3 .*\.txt
txt r-cran-tm 5 .*\.txt
md nodejs-doc 0 .*/api/.*\.md
json nodejs-doc 0 .*/api/.*\.json
html nodejs-doc 0 .*/api/.*\.html
html git-doc 0 .*\.html
adoc git-doc 0 .*\.\(txt\|adoc\)
html python-odf-doc 0 .*\.html"

[ $# -gt 0 ] || die "documents.sh wants the directory to be filled"
into=$1 every=${2:-}
have apt-get || die "the documents come from Debian's packages, and there is no apt-get: fill $into with any of your own"
tmp=$into.new
rm -rf "$tmp"
mkdir -p "$tmp/packages" "$tmp/documents"
trap 'rm -rf "$tmp"' EXIT

# A Debian that lacks one of them has fewer documents.
mapfile -t packages < <(cut -d' ' -f2 <<<"$KINDS" | sort -u)
mapfile -t known < <(apt-cache madison "${packages[@]}" 2>/dev/null | sed -nE 's/^ *([^ |]+) .*/\1/p' | sort -u)
[ ${#known[@]} -gt $((${#packages[@]} / 2)) ] || die "apt knows too few of the packages: run as root: apt-get update"
say "fetching ${#known[@]} packages of documents (28 MB)"
(cd "$tmp/packages" && apt-get download "${known[@]}") >"$tmp/log" 2>&1 ||
    die "apt-get download failed$(grep -E '^E:' "$tmp/log" | tail -n 1 | sed 's/.*/ (&)/'): see to the network and to apt's sources"
for package in "${known[@]}"; do dpkg-deb --extract "$tmp/packages/${package}"_*.deb "$tmp/packages/$package"; done

# A document is PACKAGE/NAME.EXTENSION.
while read -r extension package most path <&3; do
    if [ ! -d "$tmp/packages/$package" ]; then continue; fi
    [ -z "$every" ] || most=100000
    mkdir -p "$tmp/documents/$package"
    taken=0
    while read -r _ file <&4; do
        name=${file##*/}
        name=${name%.gz}
        name=$package/${name%.*}.$extension
        if [ "$taken" -ge "$most" ] || [ -e "$tmp/documents/$name" ]; then continue; fi
        case $file in *.gz) gzip -dc "$file" ;; *) cat "$file" ;; esac >"$tmp/documents/$name"
        taken=$((taken + 1))
    done 4< <(find "$tmp/packages/$package" -type f -size +0 -regex "$path\(\.gz\)?" -printf '%s %p\n' | sort -k1,1n -k2)
done 3<<<"$KINDS"
# This says what is whole.
rm -rf "$into"
mv "$tmp/documents" "$into"
say "$into: $(find "$into" -type f | wc -l) documents of $(find "$into" -type f | sed 's/.*\.//' | sort -u | wc -l) formats"
