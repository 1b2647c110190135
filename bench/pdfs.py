#!/usr/bin/env python3
"""Fills a directory with the 100 PDF files that bench/extract.md is about, from Debian's packages (120 MB).

    bench/pdfs.py DIRECTORY

Of each package, the three files whose SHA-256 is lowest, of those of 4 kB to 3 MB; of all of these, the hundred whose
SHA-256 is lowest.
"""

import gzip
import hashlib
import pathlib
import subprocess
import sys
import tempfile

PACKAGES = """
asymptote-doc auto-multiple-choice-doc-pdf avrdude-doc bash-doc bibtool cvs ddd-doc debian-faq debian-policy
debian-reference-de debian-reference-es debian-reference-fr dejagnu developers-reference docbook-xsl-doc-pdf
fig2dev flex-doc fonts-sil-charis gap-guava geomview ghostscript-doc gnuplot-doc graphviz-doc gretl-doc
gri-pdf-doc groff latex2rtf-doc libtasn1-doc live-manual-pdf maint-guide menhir-doc mpich-doc ngspice-doc
octave-doc packaging-tutorial pspp r-cran-coin r-cran-lme4 r-cran-multcomp r-cran-mvtnorm r-cran-party
r-cran-sandwich r-cran-sp r-cran-strucchange r-cran-survival r-cran-tm r-cran-vcd r-cran-zoo sbcl-doc simh
siscone-doc-pdf ubuntu-packaging-guide-pdf why3-doc-pdf xfig-doc xindy-rules zsh-doc
"""
OF_A_PACKAGE = 3
IN_ALL = 100
SIZES = range(4_096, 3_000_001)


def of_package(package, folder):
    """The files of a package, by their hashes: name and bytes."""
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    found = {}
    for path in pathlib.Path(folder).rglob("*.pdf*"):
        if path.is_symlink() or not path.is_file() or not path.name.endswith((".pdf", ".pdf.gz")):
            continue
        data = path.read_bytes()
        if path.name.endswith(".gz"):
            data = gzip.decompress(data)
        if len(data) in SIZES:
            found[hashlib.sha256(data).hexdigest()] = (path.name.removesuffix(".gz"), data)
    return found


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir()
    chosen = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["apt-get", "download", *PACKAGES.split()], cwd=folder, check=True)
        for package in sorted(pathlib.Path(folder).glob("*.deb")):
            found = of_package(package, package.with_suffix(""))
            for digest in sorted(found)[:OF_A_PACKAGE]:
                name, data = found[digest]
                chosen.setdefault(digest, (f"{package.name.split('_')[0]}-{name}", data))
    for digest in sorted(chosen)[:IN_ALL]:
        name, data = chosen[digest]
        (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
