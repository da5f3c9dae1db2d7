"""Making a study: which texts are judged, by whom, in what order and on which side each text stands.

A study is a folder. `study.json` says everything but who may judge and is the same whenever the same files, settings
and seed are given; `judges.json` has the judges' secret tokens; `answers.sqlite` comes when judging begins. Whatever
is read afterwards, by the server or the report, is read from there and not from the systems' files.
"""

import json
import platform
import random
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pointer import __version__
from pointer.errors import DataError, StorageError, UsageError
from pointer.evaluation.outputs import check_aligned, named_file, read_system
from pointer.storage import file_hash, full_disk_explained, write_whole

if TYPE_CHECKING:
    from pointer.evaluation.outputs import System

FORMAT = 2
HUMAN = "human"
"""What the text that people wrote is called in tables."""
ITEMS_PER_CHECK = 20
FEWEST_CHECKS = 2
FEWEST_WORDS = 8
"""Of a text that makes an attention check: half of fewer words could still be a fine text."""
_PLAIN_TEXT = re.compile(r"\.txt(\.(gz|xz|zst))?$", re.IGNORECASE)


class Form(NamedTuple):
    """A way to ask: what is asked about the texts of an item, and what can be answered."""

    noun: str
    """What an item is."""
    questions: dict[str, str]
    """Name and wording."""
    choices: tuple[str, ...]
    """The answers to every question, from the one that the key 1 gives."""
    kinds: tuple[int, ...]
    """As which of three kinds each choice counts in shares."""
    attentive: int
    """The kind that answers an attention check rightly."""


FORMS = {
    "pairs": Form(
        "pair",
        {  # the paper's, in its words
            "semantics": "A and B, which is more semantically meaningful and consistent?",
            "fluency": "A and B, which is more grammatical and fluent?",
            "informativeness": "A and B, which is more informative?",
        },
        ("A clearly", "A slightly", "Neither", "B slightly", "B clearly"),
        kinds=(0, 0, 1, 2, 2),
        attentive=0,
    ),
    "ratings": Form(
        "text",
        {"sense": "Does this text make sense?"},
        ("It makes sense", "It would, but for one slip", "It does not"),
        kinds=(0, 1, 2),
        attentive=2,
    ),
}
"""`pairs`: which of two texts is better? `ratings`: one text at a time."""


@dataclass(frozen=True)
class StudySettings:
    """What a study asks for."""

    form: str = "pairs"
    """One of `FORMS`."""
    questions: tuple[str, ...] | None = None
    """Names of the form's questions; all of them if None."""
    samples: int = 400
    """Lines of the files that are drawn, the same of every file."""
    judges: int = 5
    """Judges of each item."""
    panel: int | None = None
    """People who share the work; as many as `judges` if None."""
    checks: int | None = None
    """Attention checks for each person; if None one for every 20 items, at least 2."""
    seed: int = 0
    """Seed of all random draws."""

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise UsageError(f'form: expected {" or ".join(FORMS)}, found "{self.form}".', "Correct it.")
        form = FORMS[self.form]
        known = form.questions
        asked = tuple(known) if self.questions is None else self.questions
        for name in asked:
            if name not in known or asked.count(name) > 1:
                found = f'"{name}" twice' if name in known else f'"{name}"'
                raise UsageError(f"questions: expected some of {', '.join(known)}, found {found}.", "Correct it.")
        if not asked:
            raise UsageError("questions: expected at least one, found none.", f"There are {', '.join(known)}.")
        for name, least in (("samples", 1), ("judges", 1), ("panel", 1), ("checks", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name}: expected a number from {least}, found {value}.", "Correct it.")
        if self.panel is not None and self.panel < self.judges:
            raise UsageError(
                f"panel: expected at least {self.judges} people, so that each {form.noun} can have that many judges, "
                f"found {self.panel}.",
                "Raise --panel or lower --judges.",
            )


class Item(NamedTuple):
    """What is judged at once: two texts to compare, or one to rate.

    An attention check has debris of a text: beside the whole one, which is better, or alone, which makes no sense.
    """

    line: int
    """Of the systems' files, from 1."""
    constraints: tuple[str, ...]
    systems: tuple[str, ...]
    """Who wrote each of the texts."""
    texts: tuple[str, ...]
    check: bool = False


class Showing(NamedTuple):
    """An item as one judge gets to see it."""

    item: int
    swapped: bool
    """The last text is the one that stands first, as "A" on the page."""


@dataclass(frozen=True)
class Study:
    """All items, and for every judge the sheet of items in the order in which they come."""

    settings: StudySettings
    questions: dict[str, str]
    """Name and wording."""
    choices: tuple[str, ...]
    """The wording of the answers."""
    items: tuple[Item, ...]
    sheets: tuple[tuple[Showing, ...], ...]
    sources: tuple[dict[str, Any], ...] = ()
    """Name, file, hash and number of texts of every system."""
    versions: dict[str, str] = field(default_factory=lambda: {"pointer": __version__, "python": _python()})

    @property
    def form(self) -> Form:
        """How it asks."""
        return FORMS[self.settings.form]

    @property
    def lineups(self) -> list[tuple[str, ...]]:
        """The systems that stand together in an item, in the order of the files."""
        return list(dict.fromkeys(item.systems for item in self.items if not item.check))

    def shown(self, showing: Showing) -> tuple[Item, tuple[str, ...]]:
        """An item, and its texts in the order in which a judge gets to see them."""
        item = self.items[showing.item]
        return item, item.texts[::-1] if showing.swapped else item.texts

    def to_json(self) -> bytes:
        """The content of `study.json`."""
        content = {"format": FORMAT} | asdict(self)
        content["items"] = [item._asdict() for item in self.items]
        content["sheets"] = [[[showing.item, showing.swapped] for showing in sheet] for sheet in self.sheets]
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()

    @property
    def fingerprint(self) -> str:
        """A hash of all of it, which the answers carry too."""
        return sha256(self.to_json()).hexdigest()

    @staticmethod
    def from_json(content: bytes) -> "Study":
        """The study that `to_json` wrote; ValueError, KeyError or TypeError if it is none."""
        found = json.loads(content)
        if found["format"] != FORMAT:
            raise DataError(
                f"Expected a study of format {FORMAT}, found one of format {found['format']}.",
                f"Open it with pointer {found['versions']['pointer']}, which made it.",
            )
        settings = found["settings"] | {"questions": tuple(found["settings"]["questions"])}
        tuples = ("constraints", "systems", "texts")
        items = (item | {name: tuple(item[name]) for name in tuples} for item in found["items"])
        return Study(
            StudySettings(**settings),
            found["questions"],
            tuple(found["choices"]),
            tuple(Item(**item) for item in items),
            tuple(tuple(Showing(*showing) for showing in sheet) for sheet in found["sheets"]),
            tuple(found["sources"]),
            found["versions"],
        )


def _python() -> str:
    return platform.python_version()


# ---------------------------------------------------------------------------------------------------------------------
# Drawing: from texts to sheets, nothing but the seed decides.


def draw_study(systems: Sequence["System"], human: "System | None", settings: StudySettings) -> Study:
    """A study of lines drawn at random.

    In pairs the first system meets every other one and the human text; in ratings each text stands alone.
    """
    form, first = FORMS[settings.form], systems[0]
    everyone = [*systems, *([human] if human else [])]
    constraints = _check_texts(everyone)
    lineups: list[tuple[System, ...]]
    if settings.form == "pairs":
        lineups = [(first, other) for other in everyone[1:]]
        if not lineups:
            raise UsageError("Expected at least two files to compare, found one.", "Add a system, or the human text.")
    else:
        lineups = [(system,) for system in everyone]
    texts = len(first.texts)
    if settings.samples > texts:
        raise UsageError(
            f"samples: expected at most {texts:,}, as {first.name} ends at line {texts:,}, found {settings.samples:,}.",
            f"Give --samples {texts} or fewer, or files with more texts.",
        )
    rng = random.Random(settings.seed)
    lines = sorted(rng.sample(range(texts), settings.samples))
    items = [
        Item(line + 1, constraints[line], tuple(one.name for one in lineup), tuple(one.texts[line] for one in lineup))
        for lineup in lineups
        for line in lines
    ]
    panel = settings.panel or settings.judges
    shares = assign(len(items), settings.judges, panel, rng)
    wholes = _draw_wholes(human or first, lines, max(map(len, shares)), settings.checks, rng)
    checks = [_check(settings.form, line + 1, constraints[line], text, rng) for line, text in wholes]
    numbers = range(len(items), len(items) + len(checks))
    questions = settings.questions or tuple(form.questions)
    return Study(
        replace(settings, questions=questions, panel=panel, checks=len(checks)),
        {name: form.questions[name] for name in questions},
        form.choices,
        (*items, *checks),
        tuple(_sheet(share, numbers, settings.form == "pairs", rng) for share in shares),
    )


def _check_texts(systems: Sequence["System"]) -> tuple[tuple[str, ...], ...]:
    """The constraints of every line, once it is clear that all systems wrote their texts for them."""
    names = [system.name for system in systems]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f'Expected systems with different names, found "{twice}" twice.', "Name them: NAME=FILE.")
    given = [system for system in systems if system.constraints is not None]
    if not given:
        raise DataError(
            f"{systems[0].name}, line 1: expected constraints, found none; no other file has them for every line.",
            "Give at least one file that `pointer generate -o` wrote.",
        )
    expected = given[0].constraints or ()
    for system in given:
        for line, (one, other) in enumerate(zip(expected, system.constraints or (), strict=False), 1):
            if not one:
                raise DataError(f"{given[0].name}, line {line:,}: expected constraints, found none.", "Add them.")
            if [word.casefold() for word in one] != [word.casefold() for word in other]:
                raise DataError(
                    f"Line {line:,}: expected the same constraints of all systems, found {'; '.join(one)} in "
                    f"{given[0].name} and {'; '.join(other)} in {system.name}.",
                    "Give files that belong together.",
                )
    return expected


def assign(items: int, judges: int, panel: int, rng: random.Random) -> list[list[int]]:
    """For each person of the panel the items to judge: every item has as many judges, every person as much to do.

    Each item goes to those who have least so far, chance decides among equals; so loads never differ by more than one.

    >>> assign(4, 2, 4, random.Random(0))
    [[1, 2], [1, 3], [0, 3], [0, 2]]
    """
    shares: list[list[int]] = [[] for _ in range(panel)]
    for item in range(items):
        for share in sorted(shares, key=lambda share: (len(share), rng.random()))[:judges]:
            share.append(item)
    return shares


def _draw_wholes(
    source: "System", drawn: Sequence[int], load: int, wanted: int | None, rng: random.Random
) -> list[tuple[int, str]]:
    """Lines and texts to make attention checks of; none that are judged otherwise, as long as there are others."""
    usable = [line for line, text in enumerate(source.texts) if len(text.split()) >= FEWEST_WORDS]
    fresh = sorted(set(usable) - set(drawn))
    number = min(max(FEWEST_CHECKS, load // ITEMS_PER_CHECK), len(usable)) if wanted is None else wanted
    if number > len(usable):
        raise UsageError(
            f"checks: expected at most {len(usable):,}, the texts of {source.name} with {FEWEST_WORDS} words or more, "
            f"found {number:,}.",
            "Lower --checks.",
        )
    lines = rng.sample(fresh, min(number, len(fresh)))
    lines += rng.sample(sorted(set(usable) - set(lines)), number - len(lines))
    return [(line, source.texts[line]) for line in lines]


def _check(form: str, line: int, constraints: tuple[str, ...], text: str, rng: random.Random) -> Item:
    """Half of a text's words in disorder: it makes no sense, and for certain is worse than the text in every way."""
    words = text.split()
    debris = " ".join(rng.sample(words, len(words) // 2))
    if form == "pairs":
        return Item(line, constraints, ("whole", "debris"), (text, debris), check=True)
    return Item(line, constraints, ("debris",), (debris,), check=True)


def _sheet(share: Sequence[int], checks: Sequence[int], sides: bool, rng: random.Random) -> tuple[Showing, ...]:
    """A person's items and all attention checks in random order, half of either kind with the sides exchanged."""
    showings = [
        Showing(item, swapped)
        for items in (share, checks)
        for item, swapped in zip(items, _halves(len(items), rng) if sides else [False] * len(items), strict=True)
    ]
    rng.shuffle(showings)
    return tuple(showings)


def _halves(number: int, rng: random.Random) -> list[bool]:
    start = rng.randrange(2)
    sides = [(start + i) % 2 == 1 for i in range(number)]
    rng.shuffle(sides)
    return sides


# ---------------------------------------------------------------------------------------------------------------------
# Folders


def new_study(files: Sequence[str], out: Path, settings: StudySettings, human: str | None = None) -> Study:
    """Draw a study from files of texts (each `FILE` or `NAME=FILE`) and write it to a new folder.

    In pairs the first file is compared with all others. Without `human`, a plain text file (`.txt`, compressed or not)
    that is given last is the human text.
    """
    if (out / "study.json").exists() or (out / "answers.sqlite").exists():
        raise UsageError(f"out: expected a new folder, found a study in {out}.", "Choose another folder.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"out: expected a folder, found a file at {out}.", "Choose another name.")
    named = [_named(file) for file in files]
    if human is not None:
        named.append(_named(human))
    has_human = human is not None or (len(named) > 1 and bool(_PLAIN_TEXT.search(named[-1][1])))
    if has_human:
        named[-1] = (named[-1][0] or HUMAN, named[-1][1])
    systems = [read_system(path, name) for name, path in named]
    for (_, path), system in zip(named, systems, strict=True):
        check_aligned(path, system.texts, named[0][1], systems[0].texts)
    study = draw_study(systems[:-1], systems[-1], settings) if has_human else draw_study(systems, None, settings)
    study = replace(
        study,
        sources=tuple(
            {"name": system.name, "file": path, "sha256": file_hash(Path(path)), "texts": len(system.texts)}
            for (_, path), system in zip(named, systems, strict=True)
        ),
    )
    _write(study, out)
    return study


def _named(file: str) -> tuple[str | None, str]:
    name, path = named_file(file)
    if path == "-":
        raise UsageError("Expected files, whose hashes a study records, found standard input.", "Write it to a file.")
    return name, path


def _write(study: Study, out: Path) -> None:
    """Tokens first: a folder without `study.json` is no study yet, and the same command finishes it."""
    tokens = [secrets.token_urlsafe(16) for _ in study.sheets]
    try:
        with full_disk_explained(out):
            out.mkdir(mode=0o700, parents=True, exist_ok=True)  # tokens and answers are nobody else's business
    except OSError as error:
        raise StorageError(f"Could not make the folder {out}: {error.strerror}.", "Choose another --out.") from error
    write_whole(out / "judges.json", (json.dumps({"tokens": tokens}, indent=1) + "\n").encode())
    (out / "judges.json").chmod(0o600)  # also where the folder was there before
    write_whole(out / "study.json", study.to_json())


def open_study(folder: Path) -> Study:
    """The study in a folder."""
    try:
        return Study.from_json(_read(folder / "study.json"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"Expected a study of format {FORMAT} in {folder / 'study.json'}, found something else.",
            "Make it again with `pointer judge new`.",
        ) from error


def read_tokens(folder: Path, study: Study) -> list[str]:
    """The secret token of every judge."""
    try:
        tokens = [str(token) for token in json.loads(_read(folder / "judges.json"))["tokens"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"Expected tokens in {folder / 'judges.json'}, found something else.", "Restore it.") from error
    if len(set(tokens)) != len(study.sheets) or not all(tokens):
        raise DataError(
            f"Expected {len(study.sheets)} different tokens in {folder / 'judges.json'}, found {len(set(tokens))}.",
            "Restore the file that came with the study.",
        )
    return tokens


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Expected a study in {path.parent}, found no readable {path.name}.", "Make one with `pointer judge new`."
        ) from error
