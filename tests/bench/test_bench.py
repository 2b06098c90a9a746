from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from lightning_snnprec.bench import digits, main, numerics, overhead
from lightning_snnprec.bench.record import RECORDS, make_record, write_record
from lightning_snnprec.bench.tables import filled

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_tables_are_those_of_the_records() -> None:
    text = README.read_text()
    assert filled(text) == text
    marked = set(re.findall(r"<!-- table (\w+) -->", text))
    assert marked == {path.stem for path in RECORDS.glob("*.json")}


def test_every_record_says_how_to_repeat_it() -> None:
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        assert re.fullmatch(r"[0-9a-f]{12}", record["commit"]), f"{path.name}: not made on a clean commit"
        assert record["command"].startswith("snnprec bench ")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
        assert record["versions"]["torch"]


def test_a_record_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.json"
    write_record(path, make_record("overhead", {"ratio": 1.0}))
    assert json.loads(path.read_text())["results"] == {"ratio": 1.0}
    assert [entry.name for entry in path.parent.iterdir()] == ["x.json"]


def test_overhead_measures_both_and_fails_above_its_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = overhead.measure(pairs=1, steps=3, width=8, batch=4, time_steps=2)
    assert set(found) == {"ours_ms", "theirs_ms", "ratio", "self_ratio"}
    assert found["ratio"] == pytest.approx(found["ours_ms"] / found["theirs_ms"])
    monkeypatch.setattr(overhead, "measure", lambda *_: {**found, "ratio": 1.2})
    assert main(["overhead", "--pairs", "1"]) == 1
    assert "limit 1.05" in capsys.readouterr().out
    monkeypatch.setattr(overhead, "measure", lambda *_: {**found, "ratio": 1.01})
    assert main(["overhead", "--pairs", "1"]) == 0


def test_digits_compares_with_the_first_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(mode: str, seed: int, epochs: int | None) -> dict[str, float]:
        return {"accuracy": 0.97 if mode == "fp32" else 0.95, "firing_rate": 0.2, "seconds": 1.0}

    monkeypatch.setattr(digits, "_train", fake)
    arguments = argparse.Namespace(modes=["fp32", "bf16"], seeds=2, epochs=None, output=None)
    assert digits.run(arguments) == 1
    assert digits.run(argparse.Namespace(**{**vars(arguments), "modes": ["fp32"]})) == 0


def test_digits_trains_the_recipe() -> None:
    found = digits._train("fp16", seed=0, epochs=1)
    assert 0.5 < found["accuracy"] <= 1
    assert 0 < found["firing_rate"] < 1


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["speed"])
    assert stopped.value.code == 2
    assert "overhead" in capsys.readouterr().err


def test_numerics_covers_every_precision_and_input() -> None:
    rows = {case: numerics.measure(case, seed=3) for case in ("normal", "zero", "outlier channel", "inf")}
    by_name = {(row["precision"], row["quantity"]): row for row in rows["normal"]}
    assert len(by_name) == 8 * 4
    order = [by_name[precision, "output"]["sqnr_db"] for precision in ("fp32", "fp16", "bf16", "current", "nvfp4")]
    assert order == sorted(order, reverse=True)
    assert by_name["block", "output"]["cosine"] > 0.99
    zero = [row for row in rows["zero"] if row["quantity"] == "grad_weight"]
    assert all(row["absolute"] == 0 for row in zero)
    hidden = {row["precision"]: row["hidden"] for row in rows["inf"]}
    assert all(hidden[name] == (name not in ("fp32", "bf16", "fp16")) for name in hidden)


def test_a_records_command_leaves_its_own_file_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x", "bench", "overhead", "--output", "a/b.json", "--pairs", "3"])
    assert make_record("overhead", {})["command"] == "snnprec bench overhead --pairs 3"
