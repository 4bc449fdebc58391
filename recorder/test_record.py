#!/usr/bin/env python3
"""Tests of record.py: python recorder/test_record.py. They need PyTorch, and nothing else.

Every loop of testdata/loops.py runs twice, alone and recorded, and must print and train the same. Recordings are held
against the format, and against those that ../shared/zoo has of the same scripts, where that folder is there.
"""

import concurrent.futures
import dataclasses
import glob
import importlib.util
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
RECORD = os.path.join(HERE, "record.py")
LOOPS = os.path.join(HERE, "testdata", "loops.py")
ZOO = os.path.join(HERE, "..", "..", "shared", "zoo")

NAMES = ["right", "clip_first", "accumulate", "two_optimizers", "fused", "by_hand", "masters", "resumed", "closure",
         "raises", "obstructed", "ranks"]  # fmt: skip
VARIANTS = {  # more recordings of the right loop
    "chosen": ["--steps", "1,3", LOOPS, "right"],
    "calls_only": ["--budget-mb", "0", LOOPS, "right"],
    "elsewhere": ["--out", os.path.join("a", "b"), LOOPS, "right"],
    "wide": [LOOPS, "right", "2048"],
    "summed_up": ["--budget-mb", "0.2", LOOPS, "right", "2048"],
}


# ---------------------------------------------------------------------------------------------------------------------
# Running and reading


@dataclasses.dataclass
class Run:
    folder: str
    status: int
    out: str
    err: str

    def recording(self, name="recording"):
        return os.path.join(self.folder, name)

    def manifest(self):
        with open(os.path.join(self.recording(), "recording.json"), encoding="utf-8") as file:
            return json.load(file)

    def events(self, file="events.jsonl"):
        return read_events(os.path.join(self.recording(), file))

    def snapshot(self, *looks):
        """All tensors of an event's before or after."""
        found = {}
        for look in looks:
            for name in [look] if isinstance(look, str) else look:
                found.update(read_safetensors(os.path.join(self.recording(), name)))
        return found


def run(folder, *command):
    os.makedirs(folder, exist_ok=True)
    done = subprocess.run([sys.executable, *command], cwd=folder, check=False, capture_output=True, text=True)
    return Run(folder, done.returncode, done.stdout, done.stderr)


def read_events(path):
    def refuse(word):
        raise ValueError(f"{path}: {word} is no JSON")

    with open(path, encoding="utf-8") as file:
        return [json.loads(line, parse_constant=refuse) for line in file]


def read_safetensors(path):
    """name -> (dtype, shape, bytes). Strict: a header that is padded, no gap and no byte beyond."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    body = data[8 + length :]
    found, expected = {}, 0
    assert length % 8 == 0 and data[8:9] == b"{", path
    for name, about in json.loads(data[8 : 8 + length]).items():
        start, end = about["data_offsets"]
        assert start == expected, (path, name)
        expected = end
        found[name] = (about["dtype"], tuple(about["shape"]), body[start:end])
    assert expected == len(body), path
    return found


def equal(a, b):
    """Bit for bit."""
    if isinstance(a, torch.Tensor):
        same_kind = a.dtype == b.dtype and a.shape == b.shape
        return same_kind and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b


def ops(events, step):
    return [event["op"] for event in events if event["step"] == step]


def of(events, op, **fields):
    return [e for e in events if e["op"] == op and all(e.get(key) == value for key, value in fields.items())]


def rank_of(file):
    return int(file.split(".")[1].removeprefix("rank")) if "rank" in file else 0


def watched_steps(events):
    """The attempts of which all was seen."""
    return sorted({e["step"] for e in events if e["op"] == "backward" and ("after" in e or "after_summary" in e)})


# ---------------------------------------------------------------------------------------------------------------------
# The runs that the tests look at


def setUpModule():
    global TOP, alone, recorded
    TOP = tempfile.mkdtemp(prefix="record-")
    jobs = {("alone", name): [LOOPS, name] for name in NAMES}
    jobs |= {("recorded", name): [RECORD, LOOPS, name] for name in NAMES}
    jobs |= {("recorded", name): [RECORD, *arguments] for name, arguments in VARIANTS.items()}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = {key: pool.submit(run, os.path.join(TOP, *key), *command) for key, command in jobs.items()}
    alone = {name: job.result() for (kind, name), job in runs.items() if kind == "alone"}
    recorded = {name: job.result() for (kind, name), job in runs.items() if kind == "recorded"}


def tearDownModule():
    shutil.rmtree(TOP)


class SameTraining(unittest.TestCase):
    def test_prints_and_trains_the_same(self):
        for name in NAMES:
            with self.subTest(name):
                a, b = alone[name], recorded[name]
                self.assertEqual(a.out, b.out)
                self.assertEqual(a.status, b.status, b.err)
                saved = [os.path.basename(path) for path in glob.glob(os.path.join(a.folder, "final*.pt"))]
                self.assertTrue(saved or name == "raises")
                for file in saved:
                    was, now = (torch.load(os.path.join(r.folder, file), weights_only=False) for r in (a, b))
                    self.assertTrue(equal(was, now), file)

    def test_an_exception_is_reported_the_same(self):
        a, b = alone["raises"], recorded["raises"]
        self.assertEqual(b.status, 1)
        self.assertIn("RuntimeError: unscale_() has already been called", a.err)
        self.assertEqual(a.err, b.err)

    def test_says_nothing_of_its_own(self):
        for name, r in recorded.items():
            if name != "obstructed":
                self.assertNotIn("ordercheck:", r.err, name)

    def test_own_faults_are_one_warning(self):
        r = recorded["obstructed"]
        self.assertEqual(r.err.count("ordercheck recorder:"), 1)
        self.assertEqual(r.status, 0)
        self.assertTrue(of(r.events(), "note"))
        self.assertEqual(len(of(r.events(), "step")), 12)

    def test_refuses_a_folder_of_other_things(self):
        mine = os.path.join(TOP, "taken", "recording", "mine.txt")
        os.makedirs(os.path.dirname(mine))
        open(mine, "w").close()
        refused = run(os.path.join(TOP, "taken"), RECORD, LOOPS, "right")
        self.assertEqual(refused.status, 2)
        self.assertIn("other files", refused.err)
        self.assertTrue(os.path.exists(mine))

    def test_replaces_an_older_recording(self):
        run(os.path.join(TOP, "twice"), RECORD, LOOPS, "raises")
        again, once = run(os.path.join(TOP, "twice"), RECORD, LOOPS, "right"), recorded["right"]
        for folder in ("recording", os.path.join("recording", "tensors")):
            self.assertEqual(*(sorted(os.listdir(r.recording(folder))) for r in (again, once)))


class Format(unittest.TestCase):
    def files(self):
        for name, r in recorded.items():
            if name not in ("obstructed", "elsewhere"):
                for path in sorted(glob.glob(os.path.join(r.recording(), "events*.jsonl"))):
                    yield name, r, os.path.basename(path)

    def test_events(self):
        for name, r, file in self.files():
            with self.subTest(name, file=file):
                events = r.events(file)
                self.assertEqual([e["seq"] for e in events], list(range(len(events))))
                steps = [-1 if e["step"] is None else e["step"] for e in events]
                self.assertEqual(steps, sorted(steps))
                self.assertEqual(set(steps) | {-1}, set(range(-1, max(steps) + 1)))
                self.assertEqual({e["rank"] for e in events}, {rank_of(file)})
                self.assertTrue(all(isinstance(e["line"], int) for e in events if e["op"] != "note"))

    def test_names_and_files_exist(self):
        for name, r, file in self.files():
            with self.subTest(name, file=file):
                manifest, named = r.manifest(), set()
                for event in r.events(file):
                    for group, key in (("optimizers", "optimizer"), ("scalers", "scaler")):
                        if key in event:
                            self.assertIn(event[key], manifest[group])
                    self.assertLessEqual(set(event.get("covers", ())), manifest["parameters"].keys())
                    for side in ("before", "after"):
                        looks = event.get(side, [])
                        named |= {looks} if isinstance(looks, str) else set(looks)
                for path in named:
                    for tensor, (_, shape, _) in r.snapshot(path).items():
                        kind, param = tensor.split("/", 1)
                        self.assertIn(param, manifest["parameters"])
                        if kind in ("grad", "param"):
                            self.assertEqual(list(shape), manifest["parameters"][param]["shape"])
                there = glob.glob(os.path.join(r.recording(), "tensors", f"r{rank_of(file)}_*"))
                self.assertEqual({os.path.basename(path) for path in named}, set(map(os.path.basename, there)))

    def test_content_names_files(self):
        for name, r, _ in self.files():
            seen = {}
            for path in glob.glob(os.path.join(r.recording(), "tensors", "*")):
                with open(path, "rb") as file:
                    twin = seen.setdefault((os.path.basename(path).split("_")[0], file.read()), path)
                self.assertEqual(twin, path, name)

    def test_nothing_else_is_left(self):
        for name, events in (("right", ["events.jsonl"]), ("ranks", ["events.rank0.jsonl", "events.rank1.jsonl"])):
            self.assertEqual(sorted(os.listdir(recorded[name].recording())), [*events, "recording.json", "tensors"])
        self.assertTrue(os.path.exists(os.path.join(recorded["elsewhere"].folder, "a", "b", "events.jsonl")))

    def test_safetensors(self):
        spec = importlib.util.spec_from_file_location("record", RECORD)
        record = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(record)
        record.torch = torch
        tensors = {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 3), "turned": torch.arange(6.0).reshape(2, 3).T}
        for dtype in record.DTYPES:
            tensors[dtype] = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0]).to(getattr(torch, dtype))
        path = os.path.join(TOP, "all.safetensors")
        record.write_whole(path, record.safetensors(tensors))
        found = read_safetensors(path)
        self.assertEqual(found.keys(), tensors.keys())
        for name, (dtype, shape, data) in found.items():
            tensor = tensors[name]
            self.assertEqual((dtype, shape), (record.DTYPES[record.dtype_name(tensor)], tuple(tensor.shape)))
            self.assertEqual(data, bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()), name)
        try:
            from safetensors.torch import load_file
        except ImportError:
            return
        self.assertTrue(equal(load_file(path), tensors))


class Calls(unittest.TestCase):
    """What the loops' recordings say."""

    def test_right(self):
        r, events = recorded["right"], recorded["right"].events()
        attempt = ["zero_grad", "scale_loss", "backward", "unscale", "clip", "step", "update_scale"]
        self.assertEqual([ops(events, n) for n in range(11)], [attempt] * 11)
        self.assertEqual(events[0]["op"], "scaler_create")
        self.assertEqual([e["step"] for e in of(events, "step", applied=False, called=False, found_inf=True)], [4, 8])
        self.assertEqual([e["scale"] for e in of(events, "unscale")][3:6], [131072.0, 131072.0, 65536.0])
        backward = of(events, "backward", step=0)[0]
        self.assertEqual(backward["factor"], 65536.0)
        self.assertEqual(backward["before"], [])
        skipped = of(events, "step", step=4)[0]
        self.assertEqual(skipped["before"], skipped["after"])
        taken = of(events, "step", step=0)[0]
        kinds = {tensor.split("/")[0] for tensor in r.snapshot(taken["after"])}
        self.assertEqual(kinds, {"grad", "param", "exp_avg", "exp_avg_sq", "step"})
        with open(LOOPS, encoding="utf-8") as file:
            lines = file.read().splitlines()
        self.assertIn("clip_grad_norm_(net.parameters(), MAX_NORM)", lines[of(events, "clip")[0]["line"] - 1])
        manifest = r.manifest()
        self.assertEqual(manifest["precision"], {"autocast": "float16"})
        self.assertEqual(manifest["optimizers"]["0"]["params"], ["0.weight", "0.bias", "3.weight", "3.bias"])
        self.assertEqual(manifest["scalers"]["0"]["growth_interval"], 3)

    def test_unscaled_gradients_are_the_scaled_ones_divided(self):
        r = recorded["right"]
        event = of(r.events(), "unscale", step=0)[0]
        before, after = r.snapshot(event["before"]), r.snapshot(event["after"])
        for name, (_, _, data) in before.items():
            scaled, true = (torch.frombuffer(bytearray(d), dtype=torch.float32) for d in (data, after[name][2]))
            self.assertTrue(torch.equal(scaled / 65536.0, true))

    def test_clip_first(self):
        events = recorded["clip_first"].events()
        self.assertEqual(ops(events, 0)[2:6], ["backward", "clip", "unscale", "step"])
        self.assertTrue(of(events, "unscale", step=0)[0]["implicit"])

    def test_accumulate(self):
        events = recorded["accumulate"].events()
        self.assertEqual([e["step"] for e in of(events, "backward")], [i // 3 for i in range(12)])
        self.assertEqual([e["micro"] for e in of(events, "backward")], [0, 1, 2] * 4)
        self.assertEqual(ops(events, 1)[-5:], ["unscale", "clip", "step", "update_scale", "zero_grad"])
        self.assertEqual(of(events, "clip")[0]["rule"], "value")
        self.assertIn("momentum_buffer/0.weight", recorded["accumulate"].snapshot(of(events, "step")[0]["after"]))

    def test_two_optimizers(self):
        r, events = recorded["two_optimizers"], recorded["two_optimizers"].events()
        names = [r.manifest()["optimizers"][i]["params"][0] for i in "01"]
        self.assertEqual(names, ["left.0.weight", "right.0.weight"])
        self.assertEqual(events[-1]["step"], 11)
        applied = {e["optimizer"]: e["applied"] for e in of(events, "step", step=4)}
        self.assertEqual(applied, {"0": False, "1": True})

    def test_fused(self):
        events = recorded["fused"].events()
        self.assertFalse(of(events, "unscale"))
        steps = of(events, "step", via="scaler", fused=True, called=True)
        self.assertEqual(len(steps), 12)
        self.assertEqual([e["step"] for e in steps if not e["applied"]], [4, 8])
        self.assertEqual(steps[0]["grad_scale"], 65536.0)

    def test_by_hand(self):
        events = recorded["by_hand"].events()
        self.assertEqual([e["step"] for e in of(events, "backward")], list(range(12)))
        self.assertEqual([e["factor"] for e in of(events, "backward")], [65536.0] * 5 + [32768.0] * 4 + [16384.0] * 3)
        self.assertEqual(ops(events, 4), ["zero_grad", "backward"])  # Module.zero_grad clears this optimizer's
        self.assertEqual(of(events, "clip")[0]["n_tensors"], 4)
        self.assertLessEqual({3, 4, 5, 7, 8, 9}, set(watched_steps(events)))

    def test_masters(self):
        r, events = recorded["masters"], recorded["masters"].events()
        params = r.manifest()["parameters"]
        copies = [f"opt0.g0.p{k}" for k in range(4)]
        self.assertEqual([params[name]["master"] for name in ("0.weight", "0.bias", "3.weight", "3.bias")], copies)
        self.assertEqual(params["0.weight"]["dtype"], "float16")
        self.assertEqual(of(events, "clip")[0]["covers"], copies)
        self.assertEqual([e["step"] for e in of(events, "backward")], list(range(12)))  # one is skipped, none is split

    def test_resumed(self):
        events = recorded["resumed"].events()
        self.assertEqual(
            [(e["what"], e.get("optimizer")) for e in of(events, "save")][:2], [("optimizer", "0"), ("scaler", None)]
        )
        self.assertEqual(
            [(e["what"], e.get("scaler")) for e in of(events, "load")], [("optimizer", None), ("scaler", "1")]
        )
        load = of(events, "load", what="scaler")[0]
        self.assertEqual((load["previous"], load["scale"]), (65536.0, of(events, "update_scale", step=5)[0]["scale"]))
        self.assertEqual(of(events, "note")[0]["text"], "scheduler created")
        self.assertEqual([e["count"] for e in of(events, "schedule")], list(range(1, 13)))

    def test_closure(self):
        events = recorded["closure"].events()
        self.assertEqual([e["step"] for e in of(events, "step", via="optimizer")], [0, 1, 2])
        self.assertGreater(len(of(events, "backward")), 3)

    def test_raises(self):
        last = recorded["raises"].events()[-1]
        self.assertEqual((last["op"], last["during"], last["type"]), ("error", "unscale", "RuntimeError"))

    def test_ranks(self):
        r = recorded["ranks"]
        self.assertEqual(r.manifest()["world_size"], 2)
        for rank in "01":
            events = r.events(f"events.rank{rank}.jsonl")
            self.assertEqual(len(of(events, "reduce", what="gradient", kind="mean", inside="backward")), 6)
            self.assertEqual(len(of(events, "reduce", what="value", kind="sum", numel=1)), 6)


class Snapshots(unittest.TestCase):
    def test_which_attempts_are_kept(self):
        # overflows at 4 and 8, growth at the end of 2, 7 and 11; the first, the last, and the neighbours of a change
        self.assertEqual(watched_steps(recorded["right"].events()), [0, 2, 3, 4, 5, 7, 8, 9, 11])
        self.assertEqual(watched_steps(recorded["chosen"].events()), [1, 3])

    def test_budget(self):
        events = recorded["summed_up"].events()
        self.assertTrue(any("after_summary" in e for e in events))
        self.assertFalse(any("after" in e for e in events))
        self.assertEqual(len(of(events, "step")), 12)
        sides = ("before_summary", "after_summary")
        self.assertLess(sum(len(json.dumps(e[side])) for e in events for side in sides if side in e), 0.2 * (1 << 20))
        for e in recorded["calls_only"].events():
            self.assertFalse({"before", "after", "before_summary", "after_summary"} & e.keys())

    def test_summary(self):
        full, summed = recorded["wide"], recorded["summed_up"]
        a = of(full.events(), "unscale", step=0)[0]
        b = of(summed.events(), "unscale", step=0)[0]
        for side in ("before", "after"):
            tensors = full.snapshot(a[side])
            self.assertEqual(b[side + "_summary"].keys(), tensors.keys())
            for name, about in b[side + "_summary"].items():
                values = torch.frombuffer(bytearray(tensors[name][2]), dtype=torch.float32).double()
                self.assertEqual((about["n"], about["nonfinite"]), (len(values), 0))
                self.assertEqual(about["max"], values.abs().max().item())
                self.assertTrue(math.isclose(about["sumsq"], values.square().sum().item(), rel_tol=1e-12))
                self.assertTrue(all(values[i] == v for i, v in about["sample"]))


# ---------------------------------------------------------------------------------------------------------------------
# The zoo's own recordings

ZOO_LOOPS = ["003", "008", "018", "023", "033", "035", "042", "089", "117", "131"]
COMPARED = """op step micro optimizer scaler line found_inf scale called applied implicit fused grad_scale factor
    n_tensors rule norm_given kind what inside during text count given""".split()


@unittest.skipUnless(os.path.isdir(ZOO), "no ../shared/zoo")
class Zoo(unittest.TestCase):
    def test_same_calls(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = {loop: pool.submit(self.record, loop) for loop in ZOO_LOOPS}
        for loop, job in runs.items():
            for path in glob.glob(os.path.join(ZOO, f"loop_{loop}", "recording", "events*.jsonl")):
                with self.subTest(loop, file=os.path.basename(path)):
                    mine = [e for e in job.result().events(os.path.basename(path)) if not self.new(e)]
                    self.assertEqual(list(map(self.told, read_events(path))), list(map(self.told, mine)))

    def record(self, loop):
        folder = os.path.join(TOP, "zoo", loop)
        os.makedirs(folder)
        shutil.copy(os.path.join(ZOO, f"loop_{loop}", "train.py"), folder)
        return run(os.path.join(folder, "run"), RECORD, os.path.join(folder, "train.py"))

    def new(self, event):
        """The zoo's recorder did not watch Optimizer.state_dict."""
        return event["op"] == "save" and event["what"] == "optimizer"

    def told(self, event):
        """The zoo's recorder knew the loop's own counter. A scaler made between two attempts (089: at the top of the
        loop's body) belongs here to the attempt before, since a call that begins one has not been made yet."""
        left_out = {"step"} if event["op"] == "scaler_create" else set()
        return {key: event[key] for key in COMPARED if key in event and key not in left_out}


if __name__ == "__main__":
    unittest.main()
