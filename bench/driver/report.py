"""The table: a line per figure, both sides and the target beside it."""

from dataclasses import dataclass
from statistics import quantiles


def say(text: str) -> None:
    print(f"kb: {text}", flush=True)


def percentile(values: list[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass
class Line:
    what: str
    kb: str
    hand: str = ""
    ratio: str = ""
    target: str = ""
    verdict: str = ""

    def cells(self) -> list[str]:
        return [self.what, self.kb, self.hand, self.ratio, self.target, self.verdict]


HEADER = Line("what", "kb", "by hand", "ratio or difference", "target", "")


class Report:
    def __init__(self, machine: list[str]):
        self.machine = machine
        self.lines: list[Line] = []
        self.notes: list[str] = []

    def add(self, what: str, kb: str, hand: str = "", ratio: str = "", target: str = "", ok: bool | str | None = None):
        """`ok` None: a figure without a target; a text: what it is instead of ok or MISSED."""
        verdict = {None: "", True: "ok", False: "MISSED"}.get(ok, ok)
        self.lines.append(Line(what, kb, hand, ratio, target, verdict))
        say("  " + " | ".join(cell for cell in self.lines[-1].cells() if cell))

    def compare(self, what: str, kb: float, hand: float, hand_is: str = "", most: float | None = None, form: str = ".2f", unit: str = "ms"):
        """Two figures of one unit, and their ratio, which is to be `most` at the most."""
        beside = f" ({hand_is})" if hand_is else ""
        target = (f"<= {most}", kb <= most * hand) if most else ()
        self.add(what, f"{kb:{form}} {unit}", f"{hand:{form}} {unit}{beside}", f"{kb / hand:.2f}", *target)

    def note(self, text: str) -> None:
        self.notes.append(text)
        say("  " + text)

    def broken(self, name: str, error: Exception) -> None:
        # An error may have no text at all.
        said = (str(error).splitlines() or [""])[0][:90]
        self.lines.append(Line(name, f"{type(error).__name__}: {said}", verdict="BROKEN"))

    def text(self) -> str:
        rows = [line.cells() for line in [HEADER, *self.lines]]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        table.insert(1, "-" * max(map(len, table)))
        return "\n".join(["", *self.machine, "", *table, "", *self.notes, ""])

    def markdown(self, command: str) -> str:
        rows = ["| " + " | ".join(line.cells()) + " |" for line in [HEADER, *self.lines]]
        rows.insert(1, "|" + "---|" * len(HEADER.cells()))
        machine = "\n".join(f"- {line}" for line in self.machine)
        notes = "\n".join(f"- {note}" for note in self.notes)
        return f"# The last run of `{command}`\n\n{machine}\n\n" + "\n".join(rows) + f"\n\n{notes}\n"
