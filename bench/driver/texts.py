"""Texts: made up, the same on every run, all different; and PostgreSQL's manual."""

import random
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path

SYLLABLES = (
    "ba be bi bo da de di do fa fe fi ga go ka ke ki la le li lo "
    "ma me mi na ne no pa pe ra re ri ro sa se ta te ti va vo"
).split()
TOPICS = 200


class Writer:
    """Words as common as in a language (Zipf), and a topic for each document, so that vectors form clusters."""

    def __init__(self, seed: int):
        chance = random.Random(0)
        words: dict[str, None] = {}
        while len(words) < 12_000:
            words["".join(chance.choices(SYLLABLES, k=chance.choice((1, 2, 2, 3, 3, 4))))] = None
        words_list = list(words)
        self.common, rare = words_list[:4_000], words_list[4_000:]
        self.weights = list(accumulate(1 / (rank + 2.7) for rank in range(len(self.common))))
        self.topics = [rare[i * 40 : i * 40 + 40] for i in range(TOPICS)]
        self.chance = random.Random(seed)

    def words(self, count: int, topic: int) -> list[str]:
        own = count // 2
        words = self.chance.choices(self.common, cum_weights=self.weights, k=count - own)
        words += self.chance.choices(self.topics[topic % TOPICS], k=own)
        self.chance.shuffle(words)
        return words

    def paragraph(self, count: int, topic: int) -> str:
        """Sentences of 8 to 20 words."""
        words, sentences = self.words(count, topic), []
        while words:
            length = self.chance.randint(8, 20)
            sentence, words = " ".join(words[:length]), words[length:]
            sentences.append(sentence.capitalize() + ".")
        return " ".join(sentences)

    def question(self, topic: int) -> str:
        return " ".join(self.words(10, topic)) + "?"


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def manual(directory: Path, pages: str = "sql-*.html") -> str:
    """The text of some pages of the manual."""
    texts = []
    for page in sorted(directory.glob(pages)):
        parser = _Text()
        parser.feed(page.read_text(errors="replace"))
        texts.append(" ".join("".join(parser.parts).split()))
    if not texts:
        raise FileNotFoundError(f"no {pages} in {directory}: run make setup")
    return "\n\n".join(texts)
