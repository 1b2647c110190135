"""MiniLM on AVX2, in a cluster whose server has KB_INSTRUCTION_SET=avx2, beside candle, which uses nothing better."""

import json
import os
import signal
import subprocess
from argparse import Namespace

import model
from report import Report
from server import Server

KIND = "chunks of 128 tokens"
# kb's tokens a second when it computed with candle, and ONNX Runtime's in f32, both on the machine of that day.
CANDLE, ONNX, DAY = 3_474, 8_928, "2026-11-21"
RATIO = 1.3
# Texts that candle computes, and how many together.
TEXTS, TOGETHER = 16, (4, 8)


def candle_rate(server: Server, texts: list[str]) -> float:
    """Candle's tokens a second: the best of each core computing texts of its own and all of them each product, of few or many texts."""
    options, rates = server.options, []
    for threads in (model.THREADS, 1):
        environment = {**os.environ, "RAYON_NUM_THREADS": str(model.THREADS // threads)}
        for size in TOGETHER:
            program = [options.candle, f"{options.models}/all-MiniLM-L6-v2", str(threads), str(size)]
            done = subprocess.run(
                program, input=json.dumps(texts), env=environment, capture_output=True, text=True, check=True, timeout=600
            )
            rates.append(float(done.stdout))
    return max(rates)


def run(server: Server, report: Report) -> None:
    options = server.options
    if not options.avx2_host:
        report.note("avx2: skipped, this machine lacks AVX2 or FMA")
        return
    other = Server(Namespace(**{**vars(options), "host": options.avx2_host, "postmaster": options.avx2_postmaster}))
    connection = other.fresh("bench_avx2")
    model.create_int8(connection)
    chunks = model.batches(server, connection)[KIND]
    taken = model.some(chunks, 1)
    is_here = bool(options.candle)
    candle = candle_rate(server, [content for content, _ in taken[0][:TEXTS]]) if is_here else CANDLE
    rates = {}
    for embedder, kind in (("minilm", "f32"), ("int8", "int8")):
        model.embed(connection, embedder, ["The model is loaded by now."])
        took, tokens = model.embed_all(connection, embedder, model.some(chunks, model.CALLS))
        rates[kind] = rate = tokens / took
        # Candle had no int8: there is no target for it.
        is_f32 = kind == "f32"
        report.add(
            f"MiniLM {kind} on AVX2 (forced), {KIND}",
            f"{rate:,.0f} tokens/s",
            f"candle f32 {candle:,.0f}" if is_here else f"candle f32 {candle:,.0f} (on the machine of {DAY})",
            f"{rate / candle:.2f}",
            f">= {RATIO}" if is_f32 else "",
            rate >= RATIO * candle if is_f32 else None,
        )
    connection.close()
    if not is_here and (now := server.shared.get("onnx f32")):
        here = CANDLE * now / ONNX
        report.note(
            f"avx2: ONNX Runtime f32 gave {ONNX:,} tokens/s on the machine of {DAY} and gives {now:,.0f} on this one; if candle were"
            f" faster here by as much, it would give {here:,.0f}, and f32 on AVX2 {rates['f32'] / here:.2f} of that"
        )
    # Its gateway holds two models: nothing of it is left beside the benchmarks that follow.
    os.kill(other.postmaster, signal.SIGINT)
