#!/usr/bin/env python3
"""Record what an unchanged PyTorch training loop does, for `ordercheck check`.

    python recorder/record.py [--out DIR] [--steps 0,5,9] [--budget-mb N] train.py [its arguments...]

The script runs as __main__ in this process, with its own sys.argv and sys.path[0]. DIR (default `recording`) becomes a
recording of format version 1: in events.jsonl (events.rankN.jsonl where there are ranks) the calls whose order
matters, in tensors/ snapshots of gradients, parameters and optimizer state, and recording.json. Training is bit for
bit what it is without the recorder: it draws no random number and writes to no tensor of the script's, and its own
faults are a warning, never an exception in the script.

Snapshots are kept of the first attempt, around every overflow, before and after every change of the scale, and of the
last attempt, within --budget-mb (default 64). What does not fit is summed up (before_summary), then left out. For that
every attempt has to be looked at; of a long run, or a large model, name the attempts that matter: --steps 0,5,9.

Needs Python 3.9 and a PyTorch that has torch.amp.GradScaler (2.3 on; tested with 2.15), nothing else. Not seen:
gradients changed by hand (their snapshots show it), torch.autograd.grad, calls inside torch.compile and while a CUDA
graph is captured or replayed. A warning that names its caller may name this file instead.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib.util
import json
import math
import multiprocessing.spawn
import multiprocessing.util
import os
import re
import runpy
import struct
import sys
import types
import weakref

torch = None  # set by install(): the script decides when torch is imported

THIS_FILE = os.path.abspath(__file__)
SETTINGS = "ORDERCHECK_RECORDING"  # environment variable that hands the settings to child processes
MAX_LINE = 8 << 20  # readers need not take longer lines; a longer summary is left out
SAMPLES = 16  # elements of a tensor that its summary shows
HOW_COMPUTED = ("foreach", "capturable", "differentiable", "decoupled_weight_decay")  # settings that change no rule
INSTALLED = re.compile(r"[/\\](lib[/\\]python\d[^/\\]*|site-packages|dist-packages)[/\\]")  # no code of the user's
CHUNK = 1 << 20  # elements handled at a time, and compared to learn whether a step changed the parameters


# ---------------------------------------------------------------------------------------------------------------------
# Values and tensors, as JSON and as bytes


def number(value):
    """A number, the number in a one-element tensor, or None."""
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().item() if value.numel() == 1 and not value.is_meta else None
    return value if isinstance(value, (int, float)) else None


def plain(value):
    """The value as JSON can hold it: numbers that are not finite by name, what is neither number nor text as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    value = value if isinstance(value, str) else number(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    return value


def to_json(value, **layout):
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, **layout)


DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8",
    "bool": "BOOL",
}  # fmt: skip


def dtype_name(tensor):
    return str(tensor.dtype).split(".")[-1]


def dense(tensor):
    """This rank's values as an ordinary tensor, sharing memory where it can; None if they cannot be had."""
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    # Between two gathers a sharded parameter keeps its shape and loses its memory.
    gone = tensor.is_meta or (tensor.numel() > 0 and tensor.untyped_storage().size() == 0)
    return None if gone or dtype_name(tensor) not in DTYPES else tensor


def dense_ones(tensors):
    return {name: values for name, tensor in tensors.items() if (values := dense(tensor)) is not None}


def safetensors(tensors):
    """The bytes of a safetensors file that holds these tensors by name. Equal content gives equal bytes."""
    header, body, offset = {}, [], 0
    for name in sorted(tensors):
        values = tensors[name].cpu().contiguous()
        size = values.numel() * values.element_size()
        body.append(ctypes.string_at(values.data_ptr(), size) if size else b"")
        span = [offset, offset + size]
        header[name] = {"dtype": DTYPES[dtype_name(values)], "shape": list(values.shape), "data_offsets": span}
        offset += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the tensors begin at a multiple of 8
    return b"".join([struct.pack("<Q", len(head)), head, *body])


def summary(tensor):
    """What format version 1 says of a tensor whose elements are not kept."""
    flat = (tensor.cpu() if tensor.device.type == "mps" else tensor).reshape(-1)  # mps has no float64
    n, finite, largest, sumsq = flat.numel(), 0, 0.0, 0.0
    for part in flat.split(CHUNK) if n else ():
        bounds = torch.stack(torch.aminmax(part)).abs().max().item()
        if not math.isfinite(bounds):
            part = part[torch.isfinite(part)]
            bounds = part.abs().max().item() if part.numel() else 0.0
        part = part.double()
        finite, largest, sumsq = finite + part.numel(), max(largest, bounds), sumsq + part.dot(part).item()
    where = sorted({i * (n - 1) // (SAMPLES - 1) for i in range(SAMPLES)}) if n else []
    sample = [[i, value] for i, value in zip(where, flat[where].double().tolist())] if n else []
    return {"n": n, "nonfinite": n - finite, "max": largest, "sumsq": sumsq, "sample": sample}


def write_whole(path, data):
    """Write a file so that nobody ever sees half of it."""
    part = f"{path}.{os.getpid()}.tmp"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, path)


# ---------------------------------------------------------------------------------------------------------------------
# Names of parameters


class Names:
    """The parameters that are watched, held weakly, by name: `0.weight`, `net.0.weight` where several modules are
    trained, `opt0.g0.p0` for what is in no module, such as float32 masters."""

    def __init__(self):
        self.known = {}  # id -> (weak reference, name)
        self.described = {}  # name -> what recording.json says of it
        self.rooted = False  # a module has been named; a later one needs a prefix

    def of(self, tensor):
        ref, name = self.known.get(id(tensor), (None, None))
        return name if ref is not None and ref() is tensor else None

    def all_of(self, tensors):
        """Their names, or None if one has none."""
        names = [self.of(tensor) for tensor in tensors]
        return None if None in names else names

    def watched(self):
        return [(name, tensor) for ref, name in self.known.values() if (tensor := ref()) is not None]

    def give(self, tensor, name):
        about = {"dtype": dtype_name(tensor), "shape": list(tensor.shape)}
        first = self.of(tensor)
        if first is None:
            while name in self.described:  # another module's parameter is called so
                name += "'"
            self.known[id(tensor)] = (weakref.ref(tensor), name)
            self.described[name] = about
        elif first != name:  # tied: one tensor under two names
            self.described.setdefault(name, {**about, "same_as": first})

    def learn(self, optimizers, frame):
        """Name what these optimizers step, and the rest of the modules it is in. `frame`: where variables are looked
        up. Without an optimizer the loop steps by hand, and what has gradients is taken."""
        roots = root_modules()
        wanted = [p for optimizer in optimizers.values() for p in params_of(optimizer)]
        wanted = wanted if optimizers else [p for _, params in roots for _, p in params if p.grad is not None]
        wanted = {id(p): p for p in wanted if self.of(p) is None}
        inside = [{id(p) for _, p in params} & wanted.keys() for _, params in roots]
        outside = [p for i, p in wanted.items() if not any(i in ids for ids in inside)]
        pairs = [copies(outside, params) for _, params in roots]
        copied = choose(roots, [{id(master) for master, _ in found} for found in pairs])
        chosen = sorted({*choose(roots, inside), *copied})
        for module, params in (roots[i] for i in chosen):
            prefix = variable_name(module, frame) + "." if self.rooted or len(chosen) > 1 else ""
            for path, p in params:
                if p.requires_grad or id(p) in wanted:
                    self.give(p, prefix + path)
        self.rooted |= bool(chosen)
        for index, optimizer in optimizers.items():
            for g, group in enumerate(optimizer.param_groups):
                for k, p in enumerate(group["params"]):
                    if self.of(p) is None:
                        self.give(p, f"opt{index}.g{g}.p{k}")
        for master, half in (pair for i in copied for pair in pairs[i]):
            self.described[self.of(half)].setdefault("master", self.of(master))


def params_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def root_modules():
    """(module, [(path, parameter)]) for each module that is in no other; a tied parameter under each of its paths."""
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    parts = {id(part) for module in alive for part in module._modules.values()}
    roots = []
    for module in alive:
        if id(module) not in parts:
            wrapped = type(module).__name__ in ("DistributedDataParallel", "DataParallel")
            wrapper = re.compile((r"^module\.|" if wrapped else "") + r"\b(_orig_mod|_fsdp_wrapped_module)\.")
            params = module.named_parameters(remove_duplicate=False)
            roots.append((module, [(wrapper.sub("", path), p) for path, p in params]))
    return roots


def choose(roots, held):
    """Indices of the fewest roots that hold all that any does (`held`: a set for each); of equal ones the smaller."""
    chosen, left = [], set().union(*held)
    while left:
        best = max(range(len(roots)), key=lambda i: (len(held[i] & left), -len(roots[i][1])))
        chosen.append(best)
        left -= held[best]
    return chosen


def copies(masters, params):
    """(master, parameter) pairs where a float32 master holds the values of a half-precision parameter."""
    halves, pairs = {}, []
    for _, p in params:
        if p.dtype in (torch.float16, torch.bfloat16) and p.requires_grad:
            halves.setdefault(p.shape, []).append(p)
    for master in (m for m in masters if m.dtype == torch.float32 and m.shape in halves):
        half = next((p for p in halves[master.shape] if is_copy(master, p)), None)
        if half is not None:
            halves[master.shape] = [p for p in halves[master.shape] if p is not half]
            pairs.append((master, half))
    return pairs


def is_copy(master, half):
    master, half = master.detach().reshape(-1), half.detach().reshape(-1).to(master.device)
    return all(torch.equal(master[:n].to(half.dtype), half[:n]) for n in (64, None))  # most differ at once


def variable_name(thing, frame):
    """What the script calls it: a variable of the calling functions, or of the script; else its class."""
    while frame is not None:
        for name, value in [*frame.f_locals.items(), *frame.f_globals.items()]:
            if value is thing:
                return name
        frame = frame.f_back
    return type(thing).__name__


# ---------------------------------------------------------------------------------------------------------------------
# Files of the recording


class Files:
    """The recording's directory, as far as this process writes it."""

    def __init__(self, out, script):
        self.out, self.script = out, script
        self.events = None
        self.seq = 0
        self.written = {}  # content hash -> the snapshot that holds it
        self.manifest = None  # what this rank last said in recording.json
        self.member = None  # (rank, world size) in the process group

    def path(self, name):
        return os.path.join(self.out, name)

    def rank(self):
        """(rank, world size): of the process group, which still counts when it is gone; else of the launcher."""
        if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
            self.member = torch.distributed.get_rank(), torch.distributed.get_world_size()
        return self.member or (int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def snapshot(self, key, attempt, kind, data):
        """Put content on disk, once however often it is named."""
        if key not in self.written:
            name = f"tensors/r{self.rank()[0]}_s{attempt:03d}_{kind}_{key}.safetensors"
            os.makedirs(self.path("tensors"), exist_ok=True)
            write_whole(self.path(name), data)
            self.written[key] = name

    def append(self, events):
        """Append whole lines, so that a process that dies leaves JSON that can be read."""
        rank, world = self.rank()
        if self.events is None:
            os.makedirs(self.out, exist_ok=True)
            name = "events.jsonl" if world == 1 else f"events.rank{rank}.jsonl"
            self.events = open(self.path(name), "w", encoding="utf-8")
        for event in events:
            line = to_json({"seq": self.seq, "rank": rank, **event})
            if len(line) > MAX_LINE:
                line = to_json({"seq": self.seq, "rank": rank, **without(event, "before_summary", "after_summary")})
            self.events.write(line + "\n")
            self.seq += 1
        self.events.flush()

    def describe(self, about):
        """Write recording.json when what it says has changed; where there are ranks, together with theirs."""
        rank, world = self.rank()
        source = {"framework": "torch", "script": os.path.basename(self.script)}
        if torch is not None:
            source["version"] = str(torch.__version__).split("+")[0]
        head = {"format": "ordercheck-recording", "version": 1, "world_size": world, "source": source}
        manifest = plain({**head, **about})
        if manifest == self.manifest:
            return
        self.manifest = manifest
        with self.alone() if world > 1 else contextlib.nullcontext():
            if world > 1 and os.path.exists(self.path("recording.json")):
                with open(self.path("recording.json"), "rb") as file:
                    manifest = join(json.load(file), manifest, rank, world)
            write_whole(self.path("recording.json"), to_json(manifest, indent=1).encode())

    @contextlib.contextmanager
    def alone(self):
        """Keep other ranks out of recording.json; the lock goes with the process."""
        import fcntl

        directory = os.open(self.out, os.O_RDONLY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
        finally:
            os.close(directory)


def join(old, mine, rank, world):
    """What the ranks said so far and what this one says. Lists of parameters that differ become params_by_rank."""
    joined = {**mine, **{key: {**old[key], **mine[key]} for key in ("scalers", "optimizers", "parameters")}}
    for name, optimizer in mine["optimizers"].items():
        was = old["optimizers"].get(name, optimizer)
        # A rank that has not spoken yet is taken to own what the others do.
        owned = was.get("params_by_rank") or {str(r): was["params"] for r in range(world)}
        owned[str(rank)] = optimizer["params"]
        if any(params != optimizer["params"] for params in owned.values()):
            joined["optimizers"][name] = {**without(optimizer, "params"), "params_by_rank": owned}
    return joined


def without(fields, *names):
    return {key: value for key, value in fields.items() if key not in names}


# ---------------------------------------------------------------------------------------------------------------------
# The recorder: attempts, looks at tensors, and which of them are kept


class Attempt:
    """One pass of the loop, skipped or not: its events and the content that they may name."""

    def __init__(self, number, mode):
        self.number = number  # None before the loop
        self.mode = mode  # how tensors are looked at: "full", "summary" or None
        self.events = []
        self.blobs = {}  # content hash -> (kind, bytes), of what was not on disk yet
        self.size = 0  # bytes that its looks would add to the recording
        self.scales = set()  # what losses were multiplied by
        self.overflow = False
        self.changed = False  # its scales are not those of the attempt before
        self.clock = 0
        self.filled = self.consumed = 0  # when gradients last came from backward; were stepped, skipped or cleared
        self.grads = []  # the parameters that backward last filled
        self.places = {}  # (op, line, ...) -> when first called from there
        self.counts = {}  # (op, line, ...) -> (consumed, calls since then)
        self.micro = None  # index of the last backward since gradients were consumed
        self.accumulates = False

    def tick(self):
        self.clock += 1
        return self.clock

    def count(self, place):
        """How many calls came from this place before this one and after gradients were last consumed."""
        since, calls = self.counts.get(place, (None, 0))
        calls = calls if since == self.consumed else 0
        self.counts[place] = (self.consumed, calls + 1)
        return calls


class Recorder:
    """Takes what the watches see. Its methods may raise; `watch` turns that into a warning."""

    def __init__(self, out, script, steps, budget, main):
        self.script, self.folder, self.steps, self.budget = script, os.path.dirname(script), steps, budget
        self.main = main  # false in a process that the script started
        self.files, self.names = Files(out, script), Names()
        self.attempt, self.pending = Attempt(None, None), None  # the current one, and the one before if undecided
        self.used = 0  # bytes of snapshots and summaries kept
        self.expected = None  # bytes of one attempt's snapshots
        self.optimizers, self.scalers = [], []  # weak references
        self.sizes = None  # how many parameters each optimizer had when they were last named
        self.about = {"precision": {"autocast": None}, "scalers": {}, "optimizers": {}}
        self.about["parameters"] = self.names.described
        self.inside = []  # families of the watched calls that are running
        self.scaler_step = None  # fields of the step that a running GradScaler.step makes
        self.reduces = False  # the next backward reduces gradients over the ranks
        self.faults = set()
        self.own_files = {}  # file -> whether it is the user's
        self.registered = False

    def fault(self, error):
        """Say once on standard error, and in the recording, that something could not be recorded."""
        text = f"recorder: {type(error).__name__}: {error}"
        if not self.faults:
            print(f"ordercheck {text}; training goes on, but the recording is not complete", file=sys.stderr)
        if text not in self.faults and len(self.faults) < 20:
            self.faults.add(text)
            self.attempt.events.append({"step": self.attempt.number, "op": "note", "text": text})

    def forked(self):
        """In a forked child: what the parent noted is the parent's to write."""
        self.__init__(self.files.out, self.script, self.steps, self.budget, main=False)

    # -- events

    def frame(self):
        """The innermost frame of the user's own code: the script, or a file below its folder that is no package."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in self.own_files:
                path = os.path.abspath(name)
                below = path.startswith(self.folder + os.sep) and path != THIS_FILE and os.path.exists(path)
                self.own_files[name] = path == self.script or (below and not INSTALLED.search(path))
            if self.own_files[name]:
                return frame
            frame = frame.f_back
        return None

    def place(self):
        """The fields `line` and, if it is not the script, `file`."""
        frame = self.frame()
        if frame is None:
            return {}
        path = os.path.abspath(frame.f_code.co_filename)
        return {"line": frame.f_lineno, **({} if path == self.script else {"file": os.path.relpath(path, self.folder)})}

    def event(self, op, micro=None, **fields):
        """Note a call of this attempt. A field that is None is left out; before and after are looks."""
        if not self.main and not self.registered:  # children end in multiprocessing, not in main()
            multiprocessing.util.Finalize(None, self.finish, exitpriority=1)
            self.registered = True
        fields = {"step": self.attempt.number, "op": op, "micro": micro, **self.place(), **fields}
        self.attempt.events.append({key: value for key, value in fields.items() if value is not None or key == "step"})

    def optimizer(self, optimizer):
        """Its number, as text."""
        return str(index_of(optimizer, self.optimizers))

    def scaler(self, scaler):
        """Its number, as text; recording.json says how it was set up."""
        name = str(index_of(scaler, self.scalers))
        if name not in self.about["scalers"]:
            about = {"policy": "torch.GradScaler", "enabled": False}
            if scaler.is_enabled():
                about = {"policy": "torch.GradScaler", "init_scale": scaler.get_scale(),
                         "growth_factor": scaler.get_growth_factor(), "backoff_factor": scaler.get_backoff_factor(),
                         "growth_interval": scaler.get_growth_interval()}  # fmt: skip
            self.about["scalers"][name] = about
        return name

    # -- attempts

    def opening(self, op):
        """Begin an attempt if this call does, and return its place. An attempt ends when one of the calls that can
        begin one (zero_grad, scale_loss, backward) comes again from the same place, after its gradients were stepped,
        skipped or cleared: counting steps would miss loops that skip by hand, counting zero_grads would split loops
        with several optimizers."""
        a, place = self.attempt, (op, *self.place().values())
        begins = a.number is None
        if not begins and (op == "step" or "optimizer" not in self.inside):  # a closure's calls belong to its step
            if op == "zero_grad":
                cleared = a.filled > a.consumed
            else:
                cleared = a.places.get(place, 0) > a.consumed and self.cleared_by_hand()
            if cleared:
                self.consumed()
            begins = a.places.get(place, a.consumed) < a.consumed
        if begins:
            self.attempt = Attempt(0 if a.number is None else a.number + 1, None)
            self.close(a)
            self.attempt.mode = self.mode(self.attempt.number)
        self.attempt.places.setdefault(place, self.attempt.tick())
        return place

    def cleared_by_hand(self):
        """Whether what backward filled is gone, or zero, with no call to say so."""
        grads = (dense(p.grad) for p in self.attempt.grads if p.grad is not None)
        return self.attempt.filled > 0 and not any(g is not None and bool(g.any()) for g in grads)

    def consumed(self):
        self.attempt.consumed = self.attempt.tick()

    def mode(self, number):
        """How to look at tensors in the attempt of this number."""
        if self.steps is not None and number not in self.steps:
            return None
        if self.expected is None:  # three states of the gradients, two of parameters and two moments
            self.learn_names()
            self.expected = 9 * sum(p.numel() * p.element_size() for _, p in self.names.watched())
        return "full" if self.used + self.expected <= self.budget else "summary" if self.used < self.budget else None

    def close(self, a):
        """An attempt has ended. Now the one before it is decided; this one may still turn out to be the last, or the
        last before an overflow or a change of the scale."""
        if a.number is None:
            self.attempt.events = a.events + self.attempt.events
            return
        last, self.pending = self.pending, a
        if a.mode == "full":
            self.expected = max(self.expected, a.size)
        if last is not None:
            a.changed = a.scales != last.scales
            self.write(last, a.overflow or a.changed or last.overflow or last.changed or last.number == 0)

    def write(self, a, keep, final=False):
        """Put an attempt on disk, with what it saw if that is to be kept and leaves room for the last attempt's."""
        if not self.main and self.files.rank()[1] == 1:
            return  # a helper process; the recording is its parent's
        if self.steps is not None:
            keep = a.number in self.steps
        tight = self.steps is not None or a.number == 0 or final
        if keep and self.used + (a.size if tight else 2 * a.size) > self.budget:
            keep = False
            a.events.append({"step": a.number, "op": "note", "text": "snapshots left out: over the byte budget"})
        self.used += a.size if keep else 0
        events = []
        for event in a.events:
            shown = without(event, "before", "after") if a.accumulates else without(event, "before", "after", "micro")
            for side in ("before", "after"):
                if side in event:
                    shown.update(self.shown(side, event[side], a, keep))
            events.append(shown)
        self.files.append(events)
        self.files.describe(self.about)

    def shown(self, side, look, a, keep):
        """The field for a look: all of it if it is kept, else those of its files that are on disk anyway."""
        if isinstance(look, dict):
            return {side + "_summary": look} if keep else {}
        try:
            for key in look if keep else ():
                self.files.snapshot(key, a.number, *a.blobs.get(key, (None, None)))
        except OSError as error:  # a full disk, say: the calls are still worth writing
            keep = self.fault(error)
        names = [self.files.written[key] for key in look if key in self.files.written]
        return {side: names[0] if len(names) == 1 else names} if names or keep else {}

    def finish(self):
        """The script has ended: write what is left."""
        a = self.attempt
        if a.number is None and not a.events and (not self.main or os.path.exists(self.files.path("recording.json"))):
            return  # nothing was seen here; this may be the launcher of processes that saw the loop
        with harmless(self):
            self.attempt = Attempt(None, None)
            if a.number is not None:
                self.close(a)
            self.write(a, keep=a.number is not None, final=True)

    # -- looks at tensors

    def learn_names(self):
        """Name parameters and describe optimizers when there is a new optimizer, or one that grew."""
        optimizers = {i: o for i, ref in enumerate(self.optimizers) if (o := ref()) is not None}
        sizes = {i: len(params_of(o)) for i, o in optimizers.items()}
        if sizes == self.sizes and (sizes or self.names.known):
            return
        self.sizes = sizes
        self.names.learn(optimizers, self.frame())
        for index, o in optimizers.items():
            about = {"name": type(o).__name__, "params": [self.names.of(p) for p in params_of(o)]}
            settings = without(o.param_groups[0], "params", "param_names", "initial_lr", *HOW_COMPUTED)
            about["settings"] = plain({key: value for key, value in settings.items() if value is not None})
            self.about["optimizers"][str(index)] = about

    def look(self, grads=True, state_of=None, filled=False):
        """See all gradients, and all parameters with an optimizer's state, as a field before or after of an event:
        content hashes, or summaries by tensor. `filled`: by a backward just now, so an infinity is an overflow."""
        a, kinds = self.attempt, {}
        if a.mode is None:
            return None
        self.learn_names()
        with torch.no_grad():
            if grads:
                found = {f"grad/{name}": p.grad for name, p in self.names.watched() if p.grad is not None}
                kinds["grads"] = found = dense_ones(found)
                a.overflow |= filled and not all(bool(torch.isfinite(g).all()) for g in found.values())
            if state_of is not None:
                kinds["state"] = self.state(state_of)
            if a.mode == "summary":
                look = {name: summary(t) for tensors in kinds.values() for name, t in tensors.items()}
                a.size += len(to_json(look))
                return look
            look = []
            for kind, tensors in kinds.items():
                if tensors:
                    data = safetensors(tensors)
                    look.append(hashlib.blake2b(data, digest_size=8).hexdigest())
                    if look[-1] not in a.blobs and look[-1] not in self.files.written:
                        a.blobs[look[-1]] = (kind, data)
                        a.size += len(data)
            return look

    def state(self, optimizer):
        """All watched parameters, and what this optimizer keeps for its own."""
        found = {f"param/{name}": p for name, p in self.names.watched()}
        for p in params_of(optimizer):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, (int, float)):
                    value = torch.tensor(float(value), dtype=torch.float64, device="cpu")
                if isinstance(value, torch.Tensor):
                    found[f"{key}/{self.names.of(p)}"] = value
        return dense_ones(found)


def index_of(thing, refs):
    """Its index among these weak references, where it is put if it is new."""
    for i, ref in enumerate(refs):
        if ref() is thing:
            return i
    refs.append(weakref.ref(thing))
    return len(refs) - 1


# ---------------------------------------------------------------------------------------------------------------------
# What is watched
#
# A watcher is a generator. What stands before its `yield` is done before the call, what stands after it after the
# call; the yield gives what an error event would say and receives the result. Of one family only the outermost call is
# told: clip_grad_norm_ calls get_total_norm, and one optimizer may call another.


def watch(rec, owner, name, family, watcher, many=None):
    """Have owner.name, if it is a function there, tell `watcher` of its calls and do the same as before; returns what
    stands there now. `many`: the name of a first argument that may be an iterator."""
    original = owner.__dict__.get(name)
    if not isinstance(original, types.FunctionType) or original in WATCHED:
        return original

    @functools.wraps(original)
    def watched(*args, **kwargs):
        if torch.compiler.is_compiling() or capturing() or family in rec.inside:
            return original(*args, **kwargs)
        rec.inside.append(family)
        told = about = None
        try:
            if many is not None:
                args, kwargs = repeatable(many, args, kwargs)
            with harmless(rec):
                told = watcher(rec, *args, **kwargs)
                about = next(told, None)
            result = original(*args, **kwargs)
            with harmless(rec):
                if told is not None:
                    told.send(result)
            return result
        except Exception as error:
            with harmless(rec):
                note_error(rec, about, error)
            raise
        finally:
            if told is not None:
                told.close()
            rec.inside.remove(family)

    WATCHED.add(watched)
    setattr(owner, name, watched)
    return watched


WATCHED = set()


@contextlib.contextmanager
def harmless(rec):
    try:
        yield
    except StopIteration:  # the watcher has said all
        pass
    except Exception as error:  # noqa: BLE001: recording never breaks training
        rec.fault(error)


def capturing():
    """Whether a CUDA graph is being captured: any look at a value would break it off."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def repeatable(name, args, kwargs):
    """The arguments with a list for an iterator, which two have to read."""
    given = args[0] if args else kwargs.get(name)
    if given is None or isinstance(given, torch.Tensor):
        return args, kwargs
    items = list(given) or given  # torch warns of an empty generator, so let it see one
    return ((items, *args[1:]), kwargs) if args else (args, {**kwargs, name: items})


def as_list(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def note_error(rec, about, error):
    """An error event for a call that raised, one however many watched calls the exception passes through."""
    if about is not None and not hasattr(error, "_ordercheck_noted"):
        error._ordercheck_noted = True
        rec.event("error", **about, type=type(error).__name__, text=str(error))


# -- loss scaler


def scaler_init(rec, scaler, *_, **__):
    yield
    for cls in type(scaler).__mro__:
        watch_scaler(rec, cls)
    rec.event("scaler_create", scaler=rec.scaler(scaler), scale=scaler.get_scale(), enabled=scaler.is_enabled())


def scaler_scale(rec, scaler, outputs):
    micro = rec.attempt.count(rec.opening("scale_loss"))
    scaled = yield {"during": "scale_loss", "scaler": rec.scaler(scaler)}
    scale = scaler.get_scale()
    if scaler.is_enabled():
        rec.attempt.scales.add(scale)
    rec.event("scale_loss", micro, scaler=rec.scaler(scaler), scale=scale, loss=number(outputs), scaled=number(scaled))


def found_inf(scaler, optimizer):
    """What the scaler found in this optimizer's gradients since the last update; None if it has not looked."""
    # not _found_inf_per_device(), which would make an entry
    state = scaler._per_optimizer_states.get(id(optimizer), {}) if scaler.is_enabled() else {}
    found = state.get("found_inf_per_device", {}).values()
    return any(bool(f.item()) for f in found) if found else None


def scaler_unscale(rec, scaler, optimizer):
    step, who = rec.scaler_step, {"scaler": rec.scaler(scaler), "optimizer": rec.optimizer(optimizer)}
    before = rec.look()
    yield {"during": "unscale", **who}
    found = found_inf(scaler, optimizer)
    rec.attempt.overflow |= bool(found)
    implicit = True if step is not None else None
    rec.event("unscale", rec.attempt.micro, **who, scale=scaler.get_scale(), found_inf=found, implicit=implicit,
              before=before, after=rec.look())  # fmt: skip
    if implicit and found:
        step["before"] = rec.look(grads=False, state_of=optimizer)


def scaler_step(rec, scaler, optimizer, *_, **__):
    who = {"scaler": rec.scaler(scaler), "optimizer": rec.optimizer(optimizer)}
    outer, rec.scaler_step = rec.scaler_step, {"called": False, "applied": False}
    step = rec.scaler_step  # optimizer_step fills it, if that is called
    try:
        if found_inf(scaler, optimizer):
            step["before"] = rec.look(grads=False, state_of=optimizer)
        yield {"during": "step", **who}
        if not step["called"]:
            step["after"] = rec.look(grads=False, state_of=optimizer)
        found = found_inf(scaler, optimizer)
        rec.attempt.overflow |= bool(found)
        rec.consumed()
        rec.event("step", **who, via="scaler", **step, found_inf=found, lr=rates(optimizer))
    finally:
        rec.scaler_step = outer


def scaler_state(scaler):
    return {"scale": scaler.get_scale(), "growth_tracker": scaler._get_growth_tracker()} if scaler.is_enabled() else {}


def scaler_update(rec, scaler, new_scale=None):
    previous = scaler.get_scale()
    yield {"during": "update_scale", "scaler": rec.scaler(scaler)}
    now = scaler_state(scaler) or {"scale": previous, "enabled": False}
    rec.event("update_scale", scaler=rec.scaler(scaler), previous=previous, **now, given=number(new_scale))


def scaler_save(rec, scaler):
    yield
    rec.event("save", scaler=rec.scaler(scaler), what="scaler", **scaler_state(scaler))


def scaler_load(rec, scaler, state_dict):
    previous = scaler.get_scale()
    yield {"during": "load", "scaler": rec.scaler(scaler)}
    rec.event("load", scaler=rec.scaler(scaler), what="scaler", previous=previous, **scaler_state(scaler))


# -- backward


def backward(rec, tensors, *_, **__):
    roots = as_list(tensors)
    root = roots[0] if len(roots) == 1 else None
    micro = rec.attempt.count(rec.opening("backward"))
    factor, versions, before = last_factor(root), gradient_versions(rec), rec.look()
    value = None if root is None else number(root)
    yield {"during": "backward"}
    rec.learn_names()
    a = rec.attempt
    a.micro, a.filled, a.accumulates = micro, a.tick(), a.accumulates or micro > 0
    a.grads = [p for i, (p, version) in gradient_versions(rec).items() if versions.get(i, (p, None))[1] != version]
    if factor is not None and not any(event["op"] == "scale_loss" for event in a.events):
        a.scales.add(factor)  # made by hand
    rec.event("backward", micro, root=value, factor=factor, before=before, after=rec.look(filled=True))
    if rec.reduces:  # in hooks of backward: the look above is already at reduced gradients
        rec.reduces = False
        rec.event("reduce", micro, what="gradient", kind="mean", inside="backward")


def gradient_versions(rec):
    """id of a parameter -> (it, what changes when autograd writes its gradient)."""
    return {id(p): (p, (id(p.grad), p.grad._version)) for _, p in rec.names.watched() if p.grad is not None}


def last_factor(root):
    """The constant that the root was last multiplied by, where the graph shows one."""
    node = getattr(root, "grad_fn", None)
    if node is None or type(node).__name__ != "MulBackward0":
        return None
    left, right = (edge[0] for edge in node.next_functions)
    try:
        return number(node._saved_other if right is None else node._saved_self if left is None else None)
    except RuntimeError:  # freed by an earlier backward: this one will say so itself
        return None


def data_parallel_forward(rec, module, *_, **__):
    yield
    rec.reduces |= module.require_backward_grad_sync and torch.is_grad_enabled()


# -- optimizers and schedulers


def optimizer_init(rec, optimizer, *_, **__):
    yield
    rec.optimizer(optimizer)
    watch_steps(rec, optimizer)


def optimizer_copied(rec, optimizer, *_, **__):
    yield  # copies and what was unpickled get a number when they are used
    watch_steps(rec, optimizer)


def watch_steps(rec, optimizer):
    for cls in type(optimizer).__mro__:
        if cls is not torch.optim.Optimizer:  # whose step only raises
            watch(rec, cls, "step", "optimizer", optimizer_step)
            watch(rec, cls, "zero_grad", "zero_grad", zero_grad)


def zero_grad(rec, owner, set_to_none=True):
    """An optimizer's, or a module's where it clears all that some optimizers step."""
    cleared = [owner]
    if isinstance(owner, torch.nn.Module):
        own = {id(p) for p in owner.parameters()}
        alive = [o for ref in rec.optimizers if (o := ref()) is not None]
        cleared = [o for o in alive if own.issuperset(id(p) for p in params_of(o))]
    if not cleared:
        return  # cleared_by_hand will see it
    rec.opening("zero_grad")
    before = rec.look()
    yield {"during": "zero_grad", "optimizer": rec.optimizer(cleared[0])}
    after = rec.look()
    for optimizer in cleared:
        rec.event("zero_grad", optimizer=rec.optimizer(optimizer), set_to_none=set_to_none, before=before, after=after)


def optimizer_step(rec, optimizer, *args, closure=None, **__):
    """A step of its own, or the part of GradScaler.step that changes parameters."""
    who, fields, within = {"optimizer": rec.optimizer(optimizer)}, {"called": True}, rec.scaler_step
    if within is not None:
        fields["fused"] = bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        fields["grad_scale"] = number(getattr(optimizer, "grad_scale", None))
    elif args or closure is not None:
        rec.opening("step")
    before, heads = rec.look(state_of=optimizer), first_elements(optimizer, bool(args) or closure is not None)
    yield {"during": "step", **who}
    fields.update(applied=moved(*heads), before=before, after=rec.look(state_of=optimizer))
    if within is not None:
        within.update(fields)
    else:
        rec.consumed()
        rec.event("step", **who, via="optimizer", **fields, lr=rates(optimizer))


def first_elements(optimizer, closure=False):
    """[(parameter, copy of its first elements)] of what a step would move, and whether that is all.

    A closure makes the gradients inside the step: then every parameter may move.
    """
    kept, room = [], CHUNK
    for p in params_of(optimizer):
        if room > 0 and (closure or p.grad is not None) and (values := dense(p)) is not None:
            kept.append((p, values.reshape(-1)[:room].clone()))
            room -= values.numel()
    return kept, room > 0


def moved(kept, whole):
    """Whether a step changed parameters; None if that cannot be told: NaN before and after, or not all compared."""
    for p, old in kept:
        new = dense(p)
        if new is None:
            return None
        if not torch.equal(new.reshape(-1)[: old.numel()].view(torch.uint8), old.view(torch.uint8)):
            return True
    return False if whole and all(bool(torch.isfinite(old).all()) for _, old in kept) else None


def rates(optimizer):
    """The learning rate, or one per group where they differ."""
    found = [number(group.get("lr")) for group in optimizer.param_groups]
    return found[0] if len(set(found)) == 1 else found


def optimizer_save(rec, optimizer):
    yield
    rec.event("save", optimizer=rec.optimizer(optimizer), what="optimizer")


def optimizer_load(rec, optimizer, state_dict):
    yield {"during": "load", "optimizer": rec.optimizer(optimizer)}
    rec.event("load", optimizer=rec.optimizer(optimizer), what="optimizer")


def scheduler_init(rec, scheduler, *_, **__):
    yield  # the constructor's own step is of this family, so it is not told
    rec.event("note", text="scheduler created")
    watch(rec, type(scheduler), "step", "schedule", scheduler_step)


def scheduler_step(rec, scheduler, *_, **__):
    yield
    optimizer, count = scheduler.optimizer, getattr(scheduler, "last_epoch", None)
    rec.event("schedule", optimizer=rec.optimizer(optimizer), lr=rates(optimizer), count=count)


def average_update(rec, *_, **__):
    yield
    rec.event("ema")


# -- clips, norms, collectives


def clip(rec, parameters, rule, threshold, **fields):
    params, before = as_list(parameters), rec.look()
    norm = yield {"during": "clip"}
    rec.learn_names()
    fields = {"rule": rule, "threshold": number(threshold), "norm": number(norm), **fields}
    rec.event("clip", rec.attempt.micro, **fields, n_tensors=len(params), covers=rec.names.all_of(params),
              before=before, after=rec.look())  # fmt: skip


def clip_norm(rec, parameters, max_norm, norm_type=2.0, *_, **__):
    return clip(rec, parameters, "global_norm", max_norm, norm_type=float(norm_type))


def clip_with_norm(rec, parameters, max_norm, total_norm, *_, **__):
    return clip(rec, parameters, "global_norm", max_norm, norm=number(total_norm), norm_given=True)


def clip_value(rec, parameters, clip_value, *_, **__):
    return clip(rec, parameters, "value", clip_value)


def total_norm(rec, tensors, norm_type=2.0, *_, **__):
    norm = yield {"during": "norm"}
    rec.learn_names()
    owners = {id(p.grad): p for _, p in rec.names.watched() if p.grad is not None}
    grads = as_list(tensors)
    rec.event("norm", value=number(norm), norm_type=float(norm_type), n_tensors=len(grads),
              covers=rec.names.all_of(owners.get(id(g)) for g in grads))  # fmt: skip


def collective(rec, *args, **kwargs):
    given = args[0] if args else next(kwargs[key] for key in ("tensor", "tensors") if key in kwargs)
    tensors, ops = as_list(given), torch.distributed.ReduceOp
    op = kwargs.get("op", next((arg for arg in args[1:] if isinstance(arg, ops.RedOpType)), ops.SUM))
    kinds = {"sum": ops.SUM, "mean": ops.AVG, "max": ops.MAX, "min": ops.MIN, "product": ops.PRODUCT}
    rec.learn_names()
    memory = {t.untyped_storage().data_ptr() for t in tensors}
    covers = [n for n, p in rec.names.watched() if p.grad is not None and p.grad.untyped_storage().data_ptr() in memory]
    before, numel = rec.look() if covers else None, sum(t.numel() for t in tensors)
    yield {"during": "reduce"}
    done = not kwargs.get("async_op", False)  # else there is no result yet, and waiting for it would change the run
    if covers:
        fields = {"what": "gradient", "covers": covers, **({"before": before, "after": rec.look()} if done else {})}
    elif flat := gradients_of_size(rec, numel):  # all in one buffer, which the script copies back later
        fields = {"what": "gradient", "covers": rec.names.all_of(flat)}
    else:
        fields = {"what": "value", "value": number(given) if done else None}
    fields["kind"] = next((kind for kind, known in kinds.items() if op == known), str(op))
    fields["inside"] = "backward" if "backward" in rec.inside else None
    rec.event("reduce", rec.attempt.micro, **fields, numel=numel)


def gradients_of_size(rec, numel):
    """The parameters with gradients of an optimizer whose gradients have so many elements together."""
    for optimizer in (o for ref in rec.optimizers if (o := ref()) is not None):
        params = [p for p in params_of(optimizer) if p.grad is not None]
        if numel > 1 and sum(p.numel() for p in params) == numel:
            return params
    return []


# -- installing


def watch_scaler(rec, cls):
    watch(rec, cls, "scale", "scale_loss", scaler_scale)
    watch(rec, cls, "unscale_", "unscale", scaler_unscale)
    watch(rec, cls, "step", "scaler", scaler_step)
    watch(rec, cls, "update", "update", scaler_update)
    watch(rec, cls, "state_dict", "save", scaler_save)
    watch(rec, cls, "load_state_dict", "load", scaler_load)


def install(rec, module):
    """Put the watches in place: torch has just been imported, and no other code has seen it yet."""
    global torch
    torch = module
    watch(rec, torch.amp.GradScaler, "__init__", "scaler_init", scaler_init)
    watch_scaler(rec, torch.amp.GradScaler)
    watch(rec, torch.Tensor, "backward", "backward", backward)
    watch(rec, torch.nn.parallel.DistributedDataParallel, "forward", "forward", data_parallel_forward)
    watch(rec, torch.nn.Module, "zero_grad", "zero_grad", zero_grad)
    watch(rec, torch.optim.swa_utils.AveragedModel, "update_parameters", "ema", average_update)
    optimizer = torch.optim.Optimizer
    watch(rec, optimizer, "__init__", "optimizer_init", optimizer_init)
    watch(rec, optimizer, "__setstate__", "optimizer_init", optimizer_copied)
    watch(rec, optimizer, "zero_grad", "zero_grad", zero_grad)
    watch(rec, optimizer, "state_dict", "save", optimizer_save)
    watch(rec, optimizer, "load_state_dict", "load", optimizer_load)
    schedulers = [torch.optim.lr_scheduler.LRScheduler]
    for cls in schedulers:  # grows as it goes
        schedulers += cls.__subclasses__()
        watch(rec, cls, "__init__", "schedule", scheduler_init)
        watch(rec, cls, "step", "schedule", scheduler_step)

    functions = [
        (torch.autograd, "backward", "backward", backward, None),
        (torch.nn.utils, "clip_grad_norm_", "clip", clip_norm, "parameters"),
        (torch.nn.utils, "clip_grads_with_norm_", "clip", clip_with_norm, "parameters"),
        (torch.nn.utils, "clip_grad_value_", "clip", clip_value, "parameters"),
        (torch.nn.utils, "get_total_norm", "clip", total_norm, "tensors"),
    ]
    for name in ("all_reduce", "reduce", "all_reduce_coalesced"):
        functions.append((torch.distributed, name, "reduce", collective, None))
    known = [(owner.__dict__.get(name), watch(rec, owner, name, *how)) for owner, name, *how in functions]
    replaced = {id(original): watched for original, watched in known if original is not None}
    for other in [other for name, other in sys.modules.items() if name.startswith("torch.")]:
        for name, value in list(getattr(other, "__dict__", {}).items()):
            if id(value) in replaced:  # torch's own modules hold these functions by name, too
                setattr(other, name, replaced[id(value)])

    enter = torch.autocast.__enter__

    @functools.wraps(enter)
    def entered(self):
        if self._enabled and not torch.compiler.is_compiling():
            rec.about["precision"]["autocast"] = str(self.fast_dtype).split(".")[-1]
        return enter(self)

    torch.autocast.__enter__ = entered


class AfterTorch:
    """Import hook that installs the watches when the script's `import torch` ends. Importing torch any earlier would
    take from the script what it may do before that, such as setting OMP_NUM_THREADS."""

    def __init__(self, rec):
        self.rec = rec

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                with harmless(self.rec):
                    install(self.rec, module)

            spec.loader.exec_module = exec_module
        return spec


# ---------------------------------------------------------------------------------------------------------------------
# Running the script


def start(settings, main):
    """A recorder that waits for torch, in this process and in those that the script starts."""
    rec = Recorder(**settings, main=main)
    if "torch" in sys.modules:
        with harmless(rec):
            install(rec, sys.modules["torch"])
    else:
        sys.meta_path.insert(0, AfterTorch(rec))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=rec.forked)
    prepare = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepare)
    def prepared(name):
        data = prepare(name)
        if data.get("init_main_from_path") == settings["script"]:
            data["init_main_from_path"] = THIS_FILE  # it runs the script in its turn: see the end of this file
        return data

    multiprocessing.spawn.get_preparation_data = prepared
    return rec


def run_as_main(script):
    """As `python script` does: unlike runpy this leaves sys.argv[0] as it was given, and __main__ in its place."""
    module = types.ModuleType("__main__")
    module.__file__ = script
    sys.modules["__main__"] = module
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def run_in_child():
    """In a spawned process: run the script's definitions under a recorder, and return them."""
    settings = json.loads(os.environ[SETTINGS])
    start(settings, main=False)
    defined = runpy.run_path(settings["script"], run_name="__mp_main__")
    return {name: value for name, value in defined.items() if not name.startswith("__")}


def excepthook(kind, error, traceback):
    """Print an exception as it would be printed without the recorder."""
    links, seen = [error], set()
    for link in links:  # grows as it goes
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = without_recorder(link.__traceback__)
            links += [link.__cause__, link.__context__]
    sys.__excepthook__(kind, error, error.__traceback__)


def without_recorder(traceback):
    """The traceback less this file's frames."""
    kept = []
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename not in (THIS_FILE, __file__):
            kept.append(traceback)
        traceback = traceback.tb_next
    for link, following in zip(kept, [*kept[1:], None]):
        link.tb_next = following
    return kept[0] if kept else None


OWN = r"(recording\.json|events(\.rank\d+)?\.jsonl|tensors/r\d+_s\d+_\w+\.safetensors)(\.\d+\.tmp)?"


def clear(out):
    """Make the directory ready and say whether it can be: new, empty, or an older recording's, whose files go."""
    if os.path.isdir(out) and os.listdir(out) and not os.path.exists(os.path.join(out, "recording.json")):
        return False
    os.makedirs(os.path.join(out, "tensors"), exist_ok=True)
    for name in [*os.listdir(out), *(f"tensors/{name}" for name in os.listdir(os.path.join(out, "tensors")))]:
        if re.fullmatch(OWN, name):
            os.remove(os.path.join(out, name))
    return True


def main():
    parser = argparse.ArgumentParser(prog="record.py", description="Record a PyTorch training loop for ordercheck.")
    parser.add_argument("--out", default="recording", metavar="DIR", help="where to (default: %(default)s)")
    parser.add_argument("--steps", metavar="N,N", help="look at tensors in these attempts only, counted from 0")
    parser.add_argument("--budget-mb", type=float, default=64, metavar="N", help="MiB to keep at most (default: 64)")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the script's own arguments")
    given = parser.parse_args()
    script = os.path.abspath(given.script)
    if not os.path.isfile(script):
        parser.error(f"no such script: {given.script}")
    if given.steps is not None and not re.fullmatch(r"\d+(,\d+)*", given.steps):
        parser.error(f"--steps takes numbers, as in 0,5,9: {given.steps}")
    steps = None if given.steps is None else [int(n) for n in given.steps.split(",")]
    budget = int(given.budget_mb * (1 << 20))
    settings = {"out": os.path.abspath(given.out), "script": script, "steps": steps, "budget": budget}
    if os.environ.get("RANK", "0") == "0" and not clear(settings["out"]):
        parser.error(f"{given.out} holds other files and no recording; name another directory with --out")
    os.environ[SETTINGS] = json.dumps(settings)
    sys.argv = [given.script, *given.args]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(script)
    sys.excepthook = excepthook
    rec = start(settings, main=True)
    try:
        run_as_main(script)
    finally:
        rec.finish()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__" and SETTINGS in os.environ:
    # The recorder lives in a module of its own, so that the script's names cannot replace its own.
    _spec = importlib.util.spec_from_file_location("ordercheck_recorder", THIS_FILE)
    _recorder = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(_recorder)
    globals().update(_recorder.run_in_child())
