"""Memories of long dialogues: LoCoMo (Maharana et al. 2024, snap-research/LoCoMo, data/locomo10.json, CC BY-NC, which is not in this
repository). Each turn is a memory under the conversation as its subject, with its date, its speaker, the caption of its picture, and the
turns before it as its context. What is measured is the share of the turns that hold the evidence of a question, and of their sessions,
among the first k. No chat model is asked."""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, median

from psycopg.types.json import Jsonb

from report import Report
from server import Server

DATABASE, MEMORY, SET, BATCH = "bench_locomo", "locomo", "evidence", 500
MODES = ("keyword", "dense", "hybrid")
DEPTHS = (5, 10, 20)
# Of hybrid at 10, of all questions.
TARGET = 0.70
# The turns of the same session that are the context of one.
BEFORE = 2
# As the paper has them.
CATEGORIES = {1: "several turns", 2: "time", 3: "open domain", 4: "one turn", 5: "adversarial"}


def run(server: Server, report: Report) -> None:
    file = server.options.locomo
    if not file or not Path(file).is_file():
        report.note("locomo: skipped, the dialogues are not there (LOCOMO=locomo10.json)")
        return
    samples = json.loads(Path(file).read_text())
    turns = {sample["sample_id"]: list(turns_of(sample)) for sample in samples}
    questions = {question["id"]: question for sample in samples for question in questions_of(sample, turns)}
    connection = server.fresh(DATABASE)
    connection.execute("SET statement_timeout = 0")
    connection.execute(
        "SELECT kb.create_embedder('minilm_cut', 'local', 'all-MiniLM-L6-v2', config => '{\"truncate\": true}')"
    )
    # An access makes an entry fresher, and questions must not change each other's answers.
    settings = Jsonb({"retrieval": {"count_accesses": False}})
    connection.execute("SELECT kb.create_memory(%s, 'minilm_cut', %s)", [MEMORY, settings])
    fill(connection, turns)
    ask(connection, questions)

    # At each depth, by mode: the recall of each question.
    found = {(mode, k): {} for mode in MODES for k in DEPTHS}
    options = [Jsonb({"mode": mode, "k": k}) for mode, k in found]
    rows = connection.execute(
        "SELECT options ->> 'mode', k, question_id, recall, ms FROM kb.evaluate_questions(%s, %s, %b)", [MEMORY, SET, options]
    )
    times = defaultdict(list)
    for mode, k, question_id, recall, ms in rows.fetchall():
        found[mode, k][question_id] = recall
        times[mode, k].append(ms)
    if any(len(recalls) != len(questions) for recalls in found.values()):
        raise AssertionError("kb.evaluate_questions did not answer every question")
    newest = [mean(share(last(turns, question, k), question["evidence"]) for question in questions.values()) for k in DEPTHS]
    for mode in MODES:
        recalls = [mean(found[mode, k].values()) for k in DEPTHS]
        is_target = (f">= {TARGET} at 10", recalls[1] >= TARGET) if mode == "hybrid" else ()
        what = f"LoCoMo, memories by {mode}: turns with the evidence at 5 / 10 / 20"
        report.add(what, shown(recalls), f"{shown(newest)} (the last turns)", f"p50 {median(times[mode, 10]):.1f} ms", *is_target)
    best = max(mean(found[mode, 10].values()) for mode in ("keyword", "dense"))
    hybrid = mean(found["hybrid", 10].values())
    report.add("LoCoMo, hybrid beside its better side, at 10", f"{hybrid:.3f}", f"{best:.3f}", f"{hybrid - best:+.3f}", "not less", hybrid >= best)
    sessions(connection, report, turns, questions)
    for category, name in CATEGORIES.items():
        ids = [question_id for question_id, question in questions.items() if question["category"] == category]
        shares = " / ".join(f"{mean(found[mode, 10][question_id] for question_id in ids):.3f}" for mode in MODES)
        report.add(f"LoCoMo, {len(ids)} questions about {name}: turns at 10 by {', '.join(MODES)}", shares)
    baseline(report, turns, questions)
    connection.close()


def turns_of(sample: dict):
    """Each turn with its session, in their order, and as it is remembered. A context is cut at its end, so the nearest turn comes first."""
    conversation = sample["conversation"]
    numbers = sorted(int(found[1]) for key in conversation if (found := re.fullmatch(r"session_(\d+)", key)))
    for number in numbers:
        day = conversation[f"session_{number}_date_time"].rpartition(" on ")[2]
        before: list[str] = []
        for turn in conversation[f"session_{number}"]:
            picture = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            said = f"{turn['speaker']}: {turn['text']}{picture}"
            yield {
                "id": f"{sample['sample_id']}/{turn['dia_id']}",
                "session": number,
                "fact": f"{day}. {said}",
                "context": " ".join(before),
            }
            before = [said, *before][:BEFORE]


def questions_of(sample: dict, turns: dict):
    """Those whose evidence is in the conversation."""
    known = {turn["id"]: turn["session"] for turn in turns[sample["sample_id"]]}
    for number, question in enumerate(sample["qa"]):
        named = re.findall(r"D:?(\d+):(\d+)", " ".join(question.get("evidence", ())))
        ids = {f"{sample['sample_id']}/D{int(session)}:{int(turn)}" for session, turn in named}
        evidence = {known_id: known[known_id] for known_id in ids if known_id in known}
        if evidence:
            yield {
                "id": f"{sample['sample_id']}/{number}",
                "conversation": sample["sample_id"],
                "text": question["question"],
                "evidence": evidence,
                "category": question["category"],
            }


def fill(connection, turns: dict) -> None:
    facts = [
        {
            "id": turn["id"],
            "subject": conversation,
            "fact": turn["fact"],
            "context": turn["context"],
            "metadata": {"conversation": conversation, "session": turn["session"]},
        }
        for conversation, said in turns.items()
        for turn in said
    ]
    for i in range(0, len(facts), BATCH):
        connection.execute("SELECT count(*) FROM kb.remember(%s, %b)", [MEMORY, [Jsonb(fact) for fact in facts[i : i + BATCH]]])
    connection.execute("SELECT kb.wait(%s, 1800)", [MEMORY])
    (ready,) = connection.execute("SELECT ready FROM kb.status WHERE kb_id = %s", [MEMORY]).fetchone()
    if ready != len(facts):
        raise AssertionError(f"{ready} of {len(facts)} turns are ready")


def ask(connection, questions: dict) -> None:
    connection.execute("SELECT kb.create_eval_set(%s, %s)", [MEMORY, SET])
    for question in questions.values():
        connection.execute(
            "SELECT kb.put_eval_question(%s, %s, %s, %s, %s, %s)",
            [MEMORY, SET, question["id"], question["text"], Jsonb(list(question["evidence"])),
             Jsonb({"conversation": question["conversation"]})],
        )


def sessions(connection, report: Report, turns: dict, questions: dict) -> None:
    """The share of the sessions with the evidence that the first turns are of."""
    session_of = {turn["id"]: turn["session"] for said in turns.values() for turn in said}
    newest = [mean(of_sessions(last(turns, question, k), session_of, question) for question in questions.values()) for k in DEPTHS]
    for mode in MODES:
        shares = {k: [] for k in DEPTHS}
        for question in questions.values():
            rows = connection.execute(
                "SELECT id FROM kb.recall(%s, %s, %s, 0, subject => %s, mode => %s) ORDER BY rank",
                [MEMORY, question["text"], max(DEPTHS), question["conversation"], mode],
            )
            listed = [turn_id for (turn_id,) in rows.fetchall()]
            for k in DEPTHS:
                shares[k].append(of_sessions(listed[:k], session_of, question))
        what = f"LoCoMo, kb.recall by {mode}: sessions with the evidence at 5 / 10 / 20"
        report.add(what, shown(map(mean, shares.values())), f"{shown(newest)} (the last turns)")


def of_sessions(ids: list, session_of: dict, question: dict) -> float:
    wanted = set(question["evidence"].values())
    return len(wanted & {session_of[turn_id] for turn_id in ids}) / len(wanted)


def baseline(report: Report, turns: dict, questions: dict) -> None:
    """What a prompt costs that repeats the whole conversation, at four characters a token."""
    tokens = {conversation: sum(len(turn["fact"]) for turn in said) // 4 for conversation, said in turns.items()}
    whole = mean(tokens[question["conversation"]] for question in questions.values())
    one = mean(len(turn["fact"]) / 4 for said in turns.values() for turn in said)
    report.add("LoCoMo, tokens of ten memories, beside the whole conversation", f"{10 * one:,.0f}", f"{whole:,.0f}", f"{10 * one / whole:.3f}")


def last(turns: dict, question: dict, k: int) -> list:
    return [turn["id"] for turn in turns[question["conversation"]][-k:]]


def share(ids: list, evidence: dict) -> float:
    return len(set(ids) & set(evidence)) / len(evidence)


def shown(figures) -> str:
    return " / ".join(f"{figure:.3f}" for figure in figures)
