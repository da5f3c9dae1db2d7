"""Commands before training: prepare, explain, keywords, vocabulary."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pointer.cli.shared import (
    Address,
    Engine,
    Importance,
    Json,
    Language,
    Reporter,
    Seed,
    Skeleton,
    Tagger,
    Workers,
    bar,
    draw_stages,
)


def _parts(importance: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in importance.split(",") if part.strip())
    return () if names == ("none",) else names


def prepare(
    corpus: Annotated[
        list[str],
        typer.Argument(help="Text, jsonl or parquet files, also .gz .xz .zst, also at s3:// and the like; - is stdin."),
    ],
    out: Annotated[str, typer.Option(help="The data folder to make, or to go on with: a path, or s3:// and the like.")],
    vocabulary: Annotated[str, typer.Option(help="An embedded name, a folder or a Hub id.")] = "english",
    max_length: Annotated[int, typer.Option(help="Tokens of a text; longer ones are split at sentence ends.")] = 64,
    layout: Annotated[str, typer.Option(help="lines: one text a line; running: split into sentences.")] = "lines",
    column: Annotated[str, typer.Option(help="The column or key that holds the text (parquet, jsonl).")] = "text",
    importance: Importance = "tfidf,pos,yake",
    tagger: Tagger = "perceptron",
    language: Language = "en",
    skeleton: Skeleton = "importance",
    keywords: Annotated[int, typer.Option(help="The most words of a keywords skeleton.")] = 7,
    seed: Seed = 0,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Turn a corpus into training data: texts with their importance and stages, in parquet shards.

    Killed at any moment, the same command finishes the rest.

    Examples:
        pointer prepare mine.txt --out data
        pointer prepare mine.txt --out data --layout running --max-length 128
        pointer prepare mine.txt --out data --engine ray
    """
    from pointer.prepare.corpus import Corpus, listed
    from pointer.prepare.rows import RowSettings
    from pointer.prepare.shards import Preparation
    from pointer.prepare.shards import prepare as run

    settings = RowSettings(_parts(importance), tagger, language, skeleton, keywords, seed=seed)
    preparation = Preparation(Corpus(listed(corpus), layout, column), vocabulary, max_length, settings)
    report = Reporter()
    with bar() as progress:
        manifest = run(preparation, out, workers, progress, report, engine, address)
    report.rest()
    if as_json:
        print(json.dumps(manifest, indent=2))
        return
    counts = manifest["counts"]
    lost = sum(counts["skipped"].values())
    print(
        f"{out}: {counts['rows']:,} texts, {counts['tokens']:,} tokens, {len(manifest['shards'])} shards, from "
        f"{counts['lines']:,} lines{f' ({lost:,} skipped)' if lost else ''}"
    )


def explain(
    text: Annotated[str, typer.Argument(help="A sentence or a short passage; - reads stdin.")],
    source: Annotated[str, typer.Option("--from", help="Embedded name, data folder or checkpoint.")] = "english",
    importance: Importance = "tfidf,pos,yake",
    tagger: Tagger = "perceptron",
    language: Language = "en",
    skeleton: Skeleton = "importance",
    keywords: Annotated[int, typer.Option(help="The most words of a keywords skeleton.")] = 7,
    seed: Seed = 0,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(help="Also draw the stages into this HTML file.")] = None,
) -> None:
    """Show what each word of a text is worth and at which stage it is born.

    Examples:
        pointer explain "The food was great, but the music was far too loud."
        pointer explain "The food was great, but the music was far too loud." --html stages.html
    """
    from rich.console import Console
    from rich.table import Table

    from pointer.picture import stage_table
    from pointer.prepare.explain import explain as run
    from pointer.prepare.rows import RowSettings

    settings = RowSettings(_parts(importance), tagger, language, skeleton, keywords, seed=seed)
    explanation = run(sys.stdin.read() if text == "-" else text, source, settings)
    if html is not None:
        draw_stages(explanation.stages, explanation.text, html)
    if as_json:
        print(json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("token")
    names = list(explanation.tokens[0].scores)
    for name in [*names, "factor", "importance", "born at"]:
        table.add_column(name, justify="right")
    for token in explanation.tokens:
        numbers = [*(token.scores[name] for name in names), token.factor, token.importance]
        table.add_row(token.token, *(f"{number:.2f}" for number in numbers), f"X{token.stage}")
    console = Console()
    console.print(table)
    console.print()
    console.print(stage_table(explanation.stages))


def keywords(
    text: Annotated[str, typer.Argument(help="A text, a file with one text a line, or - for stdin.")],
    most: Annotated[int, typer.Option("--max", help="The most keywords of a text.")] = 4,
    language: Language = "en",
    seed: Seed = 0,
    separator: Annotated[str, typer.Option(help="What stands between keywords.")] = " ",
    as_json: Json = False,
) -> None:
    """Draw keywords from texts as the paper does for testing: YAKE's best words, in text order, one line a text.

    Examples:
        pointer keywords "The food was great, but the music was far too loud."
        pointer keywords mine.txt --max 7 --separator "; "
    """
    from pointer.prepare.corpus import Corpus, Skipped
    from pointer.prepare.keywords import keywords_of_many

    report = Reporter()

    def lines() -> Iterator[str]:
        for line in Corpus((text,)):
            if isinstance(line, Skipped):
                report(line)
            else:
                yield line.text

    texts = lines() if text == "-" or _is_file(text) else iter([text])
    for found in keywords_of_many(texts, most, seed, language):
        print(json.dumps(found, ensure_ascii=False) if as_json else separator.join(found))
    report.rest()


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a sentence can be too long for a file name
        return False


def vocabulary(
    corpus: Annotated[list[str], typer.Argument(help="Files of the domain; - is stdin.")],
    out: Annotated[Path, typer.Option(help="The folder to write the tokenizer to.")],
    source: Annotated[str, typer.Option("--from", help="The vocabulary to shrink: name, folder or Hub id.")],
    size: Annotated[int, typer.Option(help="How many entries to keep.")] = 10_000,
    column: Annotated[str, typer.Option(help="The column or key that holds the text (parquet, jsonl).")] = "text",
) -> None:
    """Shrink a vocabulary to a domain: keep its most frequent words and all that spells any other.

    Examples:
        pointer vocabulary mine.txt --from english --size 5000 --out small
    """
    from pointer.prepare.corpus import Corpus, Text
    from pointer.text import normalise
    from pointer.vocabulary import Vocabulary, shrink, word_counts

    texts = (normalise(line.text) for line in Corpus(tuple(corpus), column=column) if isinstance(line, Text))
    large = Vocabulary.open(source)
    small, _ = shrink(large, word_counts(texts, large), size)
    small.save(out)
    print(f"{out}: {len(small):,} of {len(large):,} entries")
