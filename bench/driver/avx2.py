"""MiniLM on AVX2, in a cluster whose server has KB_INSTRUCTION_SET=avx2, beside candle, which used nothing better."""

import os
import signal
from argparse import Namespace

import model
from report import Report
from server import Server

KIND = "chunks of 128 tokens"
# kb's tokens a second when it computed with candle, and ONNX Runtime's in f32, both on the machine of that day.
CANDLE, ONNX, DAY = 3_474, 8_928, "2026-11-21"
RATIO = 1.3


def run(server: Server, report: Report) -> None:
    options = server.options
    if not options.avx2_host:
        report.note("avx2: skipped, this machine lacks AVX2 or FMA")
        return
    other = Server(Namespace(**{**vars(options), "host": options.avx2_host, "postmaster": options.avx2_postmaster}))
    connection = other.fresh("bench_avx2")
    model.create_int8(connection)
    chunks = model.batches(server, connection)[KIND]
    candle, whose = options.candle_rate or CANDLE, "given" if options.candle_rate else f"on the machine of {DAY}"
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
            f"candle f32 {candle:,.0f} ({whose})",
            f"{rate / candle:.2f}",
            f">= {RATIO}" if is_f32 else "",
            rate >= RATIO * candle if is_f32 else None,
        )
    connection.close()
    if not options.candle_rate and (now := server.shared.get("onnx f32")):
        here = CANDLE * now / ONNX
        report.note(
            f"avx2: ONNX Runtime f32 gave {ONNX:,} tokens/s on the machine of {DAY} and gives {now:,.0f} on this one; if candle were"
            f" faster here by as much, it would give {here:,.0f}, and f32 on AVX2 {rates['f32'] / here:.2f} of that"
        )
    # Its gateway holds two models: nothing of it is left beside the benchmarks that follow.
    os.kill(other.postmaster, signal.SIGINT)
