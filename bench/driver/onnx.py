"""A program: ONNX Runtime's rate on the texts that kb embeds, and its time for a question. The first line of standard input has
the texts, as a JSON object with a list for each name. For each line that follows, one of these names, it prints the tokens a second
of these texts; for a number the milliseconds that so many questions take in one batch.

onnx.py TOKENIZER.json GRAPHS THREADS KIND    KIND is f32 or int8; GRAPHS has KIND.onnx (input_ids, mask) and
KIND_nomask.onnx (input_ids)
"""

import json
import queue
import sys
import threading
import time
from statistics import median

import numpy
import onnxruntime
from tokenizers import Tokenizer

TOGETHER, QUESTIONS, WARM_UP = 4, 40, 10


def session(path: str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(sessions, batch: list[list[int]]) -> None:
    masked, plain = sessions
    longest = max(len(ids) for ids in batch)
    if all(len(ids) == longest for ids in batch):
        plain.run(None, {"input_ids": numpy.array(batch, numpy.int32)})
        return
    padded = numpy.zeros((len(batch), longest), numpy.int32)
    mask = numpy.zeros_like(padded)
    for row, ids in enumerate(batch):
        padded[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    masked.run(None, {"input_ids": padded, "mask": mask})


def rate(tokenizer: Tokenizer, workers, texts: list[str]) -> float:
    """Tokens a second: a session of one thread on each core, texts of about one length together, the longest first."""
    begun = time.perf_counter()
    encoded = sorted((encoding.ids for encoding in tokenizer.encode_batch(texts)), key=len, reverse=True)
    waiting = queue.SimpleQueue()
    for start in range(0, len(encoded), TOGETHER):
        waiting.put(encoded[start : start + TOGETHER])

    def drain(sessions) -> None:
        while True:
            try:
                run(sessions, waiting.get_nowait())
            except queue.Empty:
                return

    threads = [threading.Thread(target=drain, args=(sessions,)) for sessions in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(map(len, encoded)) / (time.perf_counter() - begun)


def main() -> None:
    path, graphs, threads, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)

    def both(count: int):
        return session(f"{graphs}/{kind}.onnx", count), session(f"{graphs}/{kind}_nomask.onnx", count)

    texts_of = json.loads(sys.stdin.readline())
    workers, one = [both(1) for _ in range(threads)], both(threads)
    for texts in texts_of.values():
        rate(tokenizer, workers, texts[:8])
    for line in sys.stdin:
        name = line.rstrip("\n")
        figure = questions(tokenizer, one, int(name)) if name.isdigit() else rate(tokenizer, workers, texts_of[name])
        print(figure, flush=True)


def questions(tokenizer: Tokenizer, sessions, together: int) -> float:
    times = []
    for i in range(QUESTIONS + WARM_UP):
        asked = [f"how do I create table number {(i + j) % 50}?" for j in range(together)]
        begun = time.perf_counter()
        run(sessions, [tokenizer.encode(text).ids for text in asked])
        times.append((time.perf_counter() - begun) * 1000)
    return median(times[WARM_UP:])


main()
