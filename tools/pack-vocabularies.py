#!/usr/bin/env python3
"""Packs the vocabularies of tiktoken-rs into crates/kb-text/src/vocabularies; run it when that crate has other ones.

A file holds the tokens by rank, each as a byte with its length and its bytes, deflated; a rank that has no token
has length 0. That is a quarter of the crate's text, most of which base64 and decimal ranks take.
tools/pack-vocabularies.py
"""

import base64
import json
import pathlib
import subprocess
import zlib

root = pathlib.Path(__file__).resolve().parent.parent
metadata = subprocess.check_output(["cargo", "metadata", "--locked", "--format-version", "1"], cwd=root)
manifest = next(p["manifest_path"] for p in json.loads(metadata)["packages"] if p["name"] == "tiktoken-rs")

# r50k_base is the beginning of p50k_base.
for name in ["o200k_base", "cl100k_base", "p50k_base"]:
    lines = (pathlib.Path(manifest).parent / "assets" / f"{name}.tiktoken").read_text().splitlines()
    tokens = {int(rank): base64.b64decode(token) for token, rank in map(str.split, lines)}
    by_rank = [tokens.get(rank, b"") for rank in range(max(tokens) + 1)]
    packed = b"".join(bytes([len(token)]) + token for token in by_rank)
    deflate = zlib.compressobj(level=9, wbits=-15, memLevel=9)
    (root / f"crates/kb-text/src/vocabularies/{name}.bin").write_bytes(deflate.compress(packed) + deflate.flush())
