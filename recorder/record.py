#!/usr/bin/env python3
"""Record what an unchanged PyTorch training loop does, for `ordercheck check`.

    python recorder/record.py [--out DIR] [--steps 0,5,9] [--budget-mb N] train.py [its arguments...]

The script runs as __main__, in this process, with its own sys.argv and sys.path[0]. DIR (default `recording`)
becomes a recording of format version 1: the calls that order matters for, one JSON object a line in events.jsonl
(events.rankN.jsonl where there are ranks), snapshots of gradients, parameters and optimizer state as safetensors,
and recording.json. Training is bit for bit what it is without the recorder: no random number is drawn, nothing is
written to a tensor, and a fault of the recorder itself is a warning, never an exception in the script.

Snapshots are kept for the first attempt, around every overflow, before and after every change of the scale, and for
the last attempt, within --budget-mb (default 64). What no longer fits is summed up (before_summary), then left out.
Every attempt has to be looked at for that; on a long or large run name the attempts instead: --steps 0,5,9.

Needs Python 3.9 and PyTorch 2.3 or newer, nothing else. Not seen: gradients changed by hand (only their snapshots
show it), torch.autograd.grad, calls inside torch.compile, tensors while a CUDA graph is captured.
"""

import argparse
import ctypes
import functools
import gc
import hashlib
import importlib.util
import json
import math
import multiprocessing
import multiprocessing.spawn
import multiprocessing.util
import os
import re
import runpy
import struct
import sys
import types
import weakref

torch = None  # set by install(): the script, not the recorder, decides when torch is imported

THIS_FILE = os.path.abspath(__file__)
SETTINGS = "ORDERCHECK_RECORDING"  # environment variable that hands the settings to child processes
MAX_LINE = 8 << 20  # readers need not take longer lines; summaries of more tensors than fit are left out
SAMPLES = 16  # elements of each tensor that a summary shows
HEAD = 1 << 22  # elements compared to learn whether a step changed the parameters


# ---------------------------------------------------------------------------------------------------------------------
# Values and tensors, as JSON and as bytes


def plain(value):
    """`value` as JSON can hold it: non-finite numbers by name, one-element tensors as numbers, the rest null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else "nan" if value != value else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return plain(number(value))


def number(value):
    """A number, a one-element tensor's number, or None."""
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().item() if value.numel() == 1 and not value.is_meta else None
    return value if isinstance(value, (int, float)) else None


DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def dense(tensor):
    """This rank's values as an ordinary tensor that shares memory where it can; None if they have none now."""
    tensor = tensor.detach()
    if type(tensor) is not torch.Tensor and hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    # A sharded parameter between two gathers keeps its shape and loses its memory.
    empty = tensor.is_meta or (tensor.numel() > 0 and tensor.untyped_storage().size() == 0)
    return None if empty or dtype_name(tensor) not in DTYPES else tensor


def tensor_bytes(tensor):
    """(safetensors dtype, shape, bytes): a copy."""
    tensor = tensor.cpu().contiguous()
    size = tensor.numel() * tensor.element_size()
    return DTYPES[dtype_name(tensor)], list(tensor.shape), ctypes.string_at(tensor.data_ptr(), size) if size else b""


def safetensors(entries):
    """The bytes of a safetensors file. `entries`: name -> (dtype, shape, bytes). Equal content gives equal bytes."""
    header, body, offset = {}, [], 0
    for name in sorted(entries):
        dtype, shape, data = entries[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
        body.append(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # tensors start on a multiple of 8
    return b"".join([struct.pack("<Q", len(head)), head, *body])


def summary(tensor):
    """What format version 1 says of a tensor that is not kept: size, finiteness, largest, sum of squares, samples."""
    flat = (tensor.cpu() if tensor.device.type == "mps" else tensor).reshape(-1)  # mps has no float64
    n, finite, largest, sumsq = flat.numel(), 0, 0.0, 0.0
    for part in flat.split(HEAD):  # float64 copies stay small
        good = part.double()
        good = good[torch.isfinite(good)]
        finite += good.numel()
        if good.numel():
            largest = max(largest, float(good.abs().max()))
            sumsq += float(good.square().sum())
    where = sorted({i * (n - 1) // max(SAMPLES - 1, 1) for i in range(SAMPLES)}) if n else []
    values = flat[torch.tensor(where, dtype=torch.int64, device=flat.device)].double().tolist() if n else []
    return {"n": n, "nonfinite": n - finite, "max": largest, "sumsq": sumsq, "sample": [list(s) for s in zip(where, values)]}


def write_whole(path, data):
    """Write a file so that nobody ever sees half of it."""
    part = f"{path}.{os.getpid()}.tmp"
    with open(part, "wb") as file:
        file.write(data)
    os.replace(part, path)


# ---------------------------------------------------------------------------------------------------------------------
# Names of objects: scalers and optimizers by number, parameters by module path


class Numbered:
    """Objects in the order in which they appeared, held weakly: recording must not keep a model alive."""

    def __init__(self):
        self.refs = []
        self.numbers = {}

    def number(self, thing):
        """(index, whether it is new)."""
        index = self.numbers.get(id(thing))
        if index is not None and self.refs[index]() is thing:
            return index, False
        self.refs.append(weakref.ref(thing))
        self.numbers[id(thing)] = len(self.refs) - 1
        return len(self.refs) - 1, True

    def alive(self):
        return [(i, thing) for i, ref in enumerate(self.refs) if (thing := ref()) is not None]


def group_params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


class Names:
    """Names of the parameters that are watched: `0.weight`, `net.0.weight` where several modules are trained,
    `opt0.g0.p0` for what belongs to no module, such as float32 masters."""

    def __init__(self):
        self.known = {}  # id -> (weak reference, name)
        self.described = {}  # name -> what recording.json says
        self.rooted = False  # a module has been named: later ones need a prefix

    def of(self, tensor):
        ref, name = self.known.get(id(tensor), (None, None))
        return name if ref is not None and ref() is tensor else None

    def watched(self):
        return [(name, tensor) for ref, name in self.known.values() if (tensor := ref()) is not None]

    def give(self, tensor, name, **more):
        while name in self.described:  # another module's parameter of that name
            name += "'"
        self.known[id(tensor)] = (weakref.ref(tensor), name)
        self.described[name] = {"dtype": dtype_name(tensor), "shape": list(tensor.shape), **more}
        return name

    def learn(self, optimizers, frame):
        """Name every parameter of these (index, optimizer) pairs that has none. `frame`: where variables have names."""
        roots = root_modules()
        wanted = [p for _, o in optimizers for p in group_params(o)]
        if not optimizers:  # a loop that steps by hand: what has gradients is trained
            wanted = [p for root in roots for _, p in root.params if p.grad is not None]
        wanted = {id(p): p for p in wanted if self.of(p) is None}
        chosen = choose(roots, [root.ids() & wanted.keys() for root in roots])
        masters = [p for i, p in wanted.items() if not any(i in root.ids() for root in chosen)]
        copied = choose(roots, [{id(m) for m, _ in copies(masters, root)} for root in roots])
        found = chosen + [root for root in copied if root not in chosen]
        for root in found:
            prefix = variable_name(root.module, frame) + "." if self.rooted or len(found) > 1 else ""
            for path, p in root.params:
                if p.requires_grad or id(p) in wanted:
                    self.give_path(p, prefix + path)
        self.rooted |= bool(found)
        for index, optimizer in optimizers:
            for g, group in enumerate(optimizer.param_groups):
                for k, p in enumerate(group["params"]):
                    if self.of(p) is None:
                        self.give(p, f"opt{index}.g{g}.p{k}")
        for root in copied:
            for master, half in copies(masters, root):
                self.described[self.of(half)].setdefault("master", self.of(master))

    def give_path(self, p, name):
        first = self.of(p)
        if first is None:
            self.give(p, name)
        elif name not in self.described:  # one tensor under two names
            self.described[name] = {"dtype": dtype_name(p), "shape": list(p.shape), "same_as": first}


class Root:
    """A module that is no other module's part, and its (path, parameter) pairs, tied ones under each path."""

    def __init__(self, module):
        self.module = module
        wrapped = type(module).__name__ in ("DistributedDataParallel", "DataParallel")
        paths = module.named_parameters(remove_duplicate=False)
        inner = re.compile((r"^module\.|" if wrapped else "") + r"\b(_orig_mod|_fsdp_wrapped_module)\.")
        self.params = [(inner.sub("", path), p) for path, p in paths]

    def ids(self):
        return {id(p) for _, p in self.params}


def root_modules():
    alive = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.nn.Module)]
    parts = {id(part) for module in alive for part in module._modules.values()}
    return [Root(module) for module in alive if id(module) not in parts]


def choose(roots, held):
    """The fewest roots that hold everything that any holds (`held`: a set for each), greedily, the smaller first."""
    chosen, left = [], set().union(*held)
    while left:
        best = max(range(len(roots)), key=lambda i: (len(held[i] & left), -len(roots[i].params)))
        chosen.append(roots[best])
        left -= held[best]
    return chosen


def copies(masters, root):
    """(master, half) pairs: which of these parameters are float32 copies of the root's half-precision ones."""
    halves = {}
    for _, p in root.params:
        if p.dtype in (torch.float16, torch.bfloat16) and p.requires_grad:
            halves.setdefault(p.shape, []).append(p)
    pairs = []
    for master in masters:
        if master.dtype != torch.float32:
            continue
        half = next((p for p in halves.get(master.shape, ()) if is_copy(master, p)), None)
        if half is not None:
            halves[master.shape] = [p for p in halves[master.shape] if p is not half]
            pairs.append((master, half))
    return pairs


def is_copy(master, half):
    master, half = master.detach().reshape(-1), half.detach().reshape(-1).to(master.device)
    return all(torch.equal(master[:n].to(half.dtype), half[:n]) for n in (64, None))  # most differ at once


def variable_name(thing, frame):
    """What the script calls `thing`: a local or global variable of the calling functions, else its class."""
    while frame is not None:
        for scope in (frame.f_locals, frame.f_globals):
            for name, value in scope.items():
                if value is thing:
                    return name
        frame = frame.f_back
    return type(thing).__name__


# ---------------------------------------------------------------------------------------------------------------------
# Files of the recording


class Files:
    """The recording directory, as far as this rank writes it."""

    def __init__(self, out, script):
        self.out, self.script = out, script
        self.events = None
        self.seq = 0
        self.written = {}  # content hash -> file that holds it
        self.manifest = None
        self.place = None

    def rank(self):
        """(rank, world size): of the process group if there is one, else of the launcher."""
        group = torch.distributed if torch is not None and torch.distributed.is_available() else None
        if group is not None and group.is_initialized():
            self.place = group.get_rank(), group.get_world_size()
        # A group that was taken down still says who this was.
        return self.place or (int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))

    def snapshot(self, key, kind, attempt, data):
        """Put a snapshot on disk, once for each content, and return its name."""
        if key not in self.written:
            name = f"tensors/r{self.rank()[0]}_s{attempt:03d}_{kind}_{key}.safetensors"
            os.makedirs(os.path.join(self.out, "tensors"), exist_ok=True)
            write_whole(os.path.join(self.out, name), data)
            self.written[key] = name
        return self.written[key]

    def append(self, events):
        """Append events, whole lines only, numbered from where the last ones ended."""
        rank, world = self.rank()
        if self.events is None:
            os.makedirs(self.out, exist_ok=True)
            name = "events.jsonl" if world == 1 else f"events.rank{rank}.jsonl"
            self.events = open(os.path.join(self.out, name), "w", encoding="utf-8")
        lines = []
        for event in events:
            line = json.dumps(plain({"seq": self.seq, "rank": rank, **event}), ensure_ascii=False, allow_nan=False)
            if len(line) > MAX_LINE:
                event = {k: v for k, v in event.items() if not k.endswith("_summary")}
                line = json.dumps(plain({"seq": self.seq, "rank": rank, **event}), ensure_ascii=False, allow_nan=False)
            lines.append(line + "\n")
            self.seq += 1
        self.events.write("".join(lines))
        self.events.flush()

    def describe(self, about, done):
        """Write recording.json if what it says has changed. Ranks write theirs beside it; they are joined here."""
        rank, world = self.rank()
        head = {"format": "ordercheck-recording", "version": 1, "world_size": world}
        version = str(torch.__version__).split("+")[0] if torch is not None else None
        head["source"] = {"framework": "torch", "version": version, "script": os.path.basename(self.script)}
        manifest = plain({**head, **about})
        if (manifest, done) == self.manifest:
            return
        self.manifest = manifest, done
        if world > 1:
            write_whole(self.part(rank), json.dumps([manifest, done]).encode())
            parts = {r: part for r in range(world) if (part := self.read_part(r)) is not None}
            manifest = join_ranks({r: part[0] for r, part in parts.items()})
            done = len(parts) == world and all(part[1] for part in parts.values())
        write_whole(os.path.join(self.out, "recording.json"), json.dumps(manifest, indent=1, ensure_ascii=False).encode())
        for r in range(world) if world > 1 and done else ():
            try:
                os.remove(self.part(r))
            except FileNotFoundError:  # another rank ended at the same time
                pass

    def part(self, rank):
        return os.path.join(self.out, f".recording.rank{rank}.json")

    def read_part(self, rank):
        try:
            with open(self.part(rank), "rb") as file:
                return json.load(file)
        except FileNotFoundError:
            return None


def join_ranks(manifests):
    """One recording.json from those of the ranks, lowest first; differing parameter lists become params_by_rank."""
    ranks = sorted(manifests)
    joined = manifests[ranks[0]]
    for rank in ranks:
        for key in ("scalers", "optimizers", "parameters"):
            for name, item in manifests[rank][key].items():
                joined[key].setdefault(name, item)
    for name, optimizer in joined["optimizers"].items():
        owned = {str(r): o["params"] for r in ranks if (o := manifests[r]["optimizers"].get(name))}
        if any(params != optimizer["params"] for params in owned.values()):
            joined["optimizers"][name] = {k: v for k, v in optimizer.items() if k != "params"} | {"params_by_rank": owned}
    return joined


# ---------------------------------------------------------------------------------------------------------------------
# The recorder: attempts, looks, and which of them are kept


class Attempt:
    """One pass of the loop, skipped or not: its events and the snapshots that they may name."""

    def __init__(self, number, mode):
        self.number = number  # None before the loop
        self.mode = mode  # how tensors are looked at: "full", "summary" or None
        self.events = []
        self.blobs = {}  # content hash -> (kind, bytes)
        self.size = 0  # bytes that keeping the looks would add to the recording
        self.scales = set()  # that the losses were multiplied by
        self.overflow = False
        self.changed = False  # the scales are others than the attempt before had
        self.clock = 0  # counts calls that may begin an attempt or end one
        self.filled = 0  # when gradients were last filled
        self.consumed = 0  # when they were last stepped, skipped or cleared
        self.sites = {}  # (op, file, line) -> when first called
        self.counts = {}  # (op, file, line) -> (consumed, calls since then)
        self.micro = None  # index of the last backward since gradients were consumed
        self.accumulates = False

    def tick(self):
        self.clock += 1
        return self.clock

    def count(self, site):
        """How many calls came from here since gradients were last consumed, before this one."""
        since, calls = self.counts.get(site, (None, 0))
        calls = calls if since == self.consumed else 0
        self.counts[site] = (self.consumed, calls + 1)
        return calls


class Recorder:
    """Receives calls from the watches below and writes them. Everything that the watches call may raise: the wrapper
    around each watched function catches it (see `watch`)."""

    def __init__(self, out, script, steps, budget):
        self.steps, self.budget = steps, budget
        self.files = Files(out, script)
        self.script, self.folder = script, os.path.dirname(script)
        self.main = multiprocessing.parent_process() is None
        self.used = 0  # bytes of snapshots and summaries kept
        self.expected = None  # size of an attempt's snapshots
        self.attempt, self.pending = Attempt(None, None), None
        self.names = Names()
        self.shape_of_loop = None  # optimizers and their sizes when parameters were last named
        self.optimizers, self.scalers = Numbered(), Numbered()
        self.about = {"precision": {"autocast": None}, "scalers": {}, "optimizers": {}, "parameters": {}}
        self.inside = []  # families of watched calls that are running, outermost first
        self.scaler_step = None  # the step event that a running GradScaler.step fills
        self.reduced = False  # a data-parallel module prepared to reduce in the next backward
        self.faults = set()
        self.user_files = {}
        self.registered = False

    # -- faults of the recorder itself

    def fault(self, error):
        """Say once on standard error, and in the recording, that something could not be recorded."""
        text = f"recorder: {type(error).__name__}: {error}"
        if not self.faults:
            print(f"ordercheck {text}; training goes on, the recording is not complete", file=sys.stderr)
        if text not in self.faults and len(self.faults) < 20:
            self.faults.add(text)
            self.attempt.events.append({"step": self.attempt.number, "op": "note", "text": text})

    # -- where in the script

    def caller(self):
        """The innermost frame of the user's own code: the script or a file below its folder, not an installed package."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in self.user_files:
                path = os.path.abspath(name)
                inside = os.path.join(path, "").startswith(os.path.join(self.folder, ""))
                library = any(part in ("site-packages", "dist-packages") for part in path.split(os.sep))
                self.user_files[name] = path == self.script or (inside and not library and path != THIS_FILE and os.path.exists(path))
            if self.user_files[name]:
                return frame
            frame = frame.f_back
        return None

    def where(self):
        """The caller as the fields `line` and, if it is not the script, `file`."""
        frame = self.caller()
        if frame is None:
            return {}
        path = os.path.abspath(frame.f_code.co_filename)
        return {"line": frame.f_lineno} | ({} if path == self.script else {"file": os.path.relpath(path, self.folder)})

    # -- events

    def event(self, op, micro=None, before=None, after=None, **fields):
        """Note a call. Fields that are None are left out; `before` and `after` are looks."""
        if not self.main and not self.registered:
            # Child processes leave through multiprocessing's own exit, not through main().
            multiprocessing.util.Finalize(None, self.finish, exitpriority=1)
            self.registered = True
        fields = {key: value for key, value in fields.items() if value is not None}
        event = {"step": self.attempt.number, "op": op, "micro": micro, **self.where(), **fields}
        if before is not None:
            event["before"] = before
        if after is not None:
            event["after"] = after
        self.attempt.events.append(event)

    def forked(self):
        """In a forked child: what the parent has noted is the parent's to write."""
        self.__init__(self.files.out, self.script, self.steps, self.budget)
        self.main = False

    # -- attempts

    def opening(self, op):
        """Begin an attempt if this zero_grad, scale_loss, backward or step with a closure begins one, and return the
        place of the call. An attempt ends when one of its first calls is made again at the same place after the
        gradients were stepped, skipped or cleared; counting steps would miss loops that skip by hand, and counting
        zero_grads would split loops with several optimizers."""
        a, place = self.attempt, (op, *self.where().values())
        begins = a.number is None
        if not begins and (op == "step" or "optimizer" not in self.inside):  # a closure's calls belong to the running step
            if op == "zero_grad":
                if a.filled > a.consumed:
                    self.consumed()
            elif a.sites.get(place, 0) > a.consumed and self.cleared():
                self.consumed()
            begins = a.sites.get(place, a.consumed) < a.consumed
        if begins:
            number = 0 if a.number is None else a.number + 1
            self.attempt = Attempt(number, self.mode(number))
            self.close(a)
        self.attempt.sites.setdefault(place, self.attempt.tick())
        return place

    def cleared(self):
        """Whether all gradients are gone or zero although no call says so: p.grad = None, or Module.zero_grad."""
        if self.attempt.filled == 0:
            return False
        grads = (dense(p.grad) for _, p in self.names.watched() if p.grad is not None)
        return not any(g is not None and bool(g.any()) for g in grads)

    def consumed(self):
        self.attempt.consumed = self.attempt.tick()

    def mode(self, number):
        """How to look at tensors during this attempt."""
        if self.steps is not None and number not in self.steps:
            return None
        if self.expected is None:  # gradients three times, then parameters and two moments twice
            self.learn_names()
            self.expected = 9 * sum(p.numel() * p.element_size() for _, p in self.names.watched())
        held = self.pending.size if self.pending is not None else 0
        if self.used + held + self.expected <= self.budget:
            return "full"
        return "summary" if self.used + held < self.budget else None

    def close(self, a):
        """An attempt has ended: decide whether the one before it and this one keep their snapshots."""
        if a.number is None:
            self.attempt.events = a.events + self.attempt.events
            return
        last, self.pending = self.pending, a
        a.changed = last is not None and a.scales != last.scales
        if a.mode == "full":
            self.expected = max(self.expected, a.size)
        if last is not None:
            self.write(last, self.wanted(last) or a.overflow or a.changed)

    def wanted(self, a):
        return a.number == 0 or a.overflow or a.changed or self.steps is not None

    def write(self, a, keep, final=False):
        """Put an attempt on disk, its snapshots only if `keep` and if they fit with room for the last attempt's."""
        if not self.main and self.files.rank()[1] == 1:
            return  # a helper process: the recording is its parent's
        if keep and self.used + (a.size if final or a.number == 0 or self.steps is not None else 2 * a.size) > self.budget:
            keep = False
            a.events.append({"step": a.number, "op": "note", "text": "no snapshots of this attempt: they are over the byte budget"})
        self.used += a.size if keep else 0
        for event in a.events:
            for side in ("before", "after"):
                if side in event:
                    event.update(self.shown(side, event.pop(side), a, keep))
            if not a.accumulates or event.get("micro") is None:
                event.pop("micro", None)
        self.files.append(a.events)
        self.files.describe({**self.about, "parameters": self.names.described}, done=final)

    def shown(self, side, look, a, keep):
        """The field that shows a look: a summary or files if kept; else those of the files that are on disk anyway."""
        if isinstance(look, dict):
            return {side + "_summary": look} if keep else {}
        try:
            for key in look if keep else ():
                kind, data = a.blobs.get(key, (None, None))
                self.files.snapshot(key, kind, a.number, data)
        except OSError as error:  # a full disk: the calls are still worth writing
            self.fault(error)
        names = [self.files.written[key] for key in look if key in self.files.written]
        if len(names) < len(look) or not keep:
            return {side: names[0] if len(names) == 1 else names} if names else {}
        return {side: names[0] if len(names) == 1 else names}

    def finish(self):
        """Write what is left; the attempt that ran last is kept."""
        try:
            a, self.attempt = self.attempt, Attempt(None, None)
            if a.number is None and not a.events:
                # Nothing happened here: other processes, if any, have the loop.
                if not self.main or os.path.exists(os.path.join(self.files.out, "recording.json")):
                    return
            if a.number is not None:
                self.close(a)
            self.write(a, keep=a.number is not None and (self.steps is None or a.number in self.steps), final=True)
        except Exception as error:  # noqa: BLE001: the script's own end must not change
            self.fault(error)

    # -- looks at tensors

    def learn_names(self):
        """Name parameters when there is a new optimizer, or one that grew."""
        optimizers = self.optimizers.alive()
        shape = [(i, len(group_params(o))) for i, o in optimizers]
        if shape == self.shape_of_loop and (shape or self.names.known):
            return
        self.shape_of_loop = shape
        self.names.learn(optimizers, self.caller())
        for index, optimizer in optimizers:
            self.about["optimizers"][str(index)] = {
                "name": type(optimizer).__name__,
                "params": [self.names.of(p) for p in group_params(optimizer)],
                "settings": settings_of(optimizer),
            }

    def look(self, state_of=None, grads=True, fresh=False):
        """Look at all gradients, and at the parameters and one optimizer's state: what `event` takes as before or
        after. `fresh`: a backward has just filled them; one that is not finite marks the attempt."""
        a = self.attempt
        if a.mode is None:
            return None
        self.learn_names()
        with torch.no_grad():
            kinds = {}
            if grads:
                found = {f"grad/{name}": p.grad for name, p in self.names.watched() if p.grad is not None}
                kinds["grads"] = found = {name: t for name, g in found.items() if (t := dense(g)) is not None}
                a.overflow |= fresh and not all(bool(torch.isfinite(t).all()) for t in found.values())
            if state_of is not None:
                kinds["state"] = self.state(state_of)
            return self.summaries(a, kinds) if a.mode == "summary" else self.snapshots(a, kinds)

    def state(self, optimizer):
        """All watched parameters, and what this optimizer keeps for its own."""
        found = {f"param/{name}": p for name, p in self.names.watched()}
        for p in group_params(optimizer):
            for key, value in optimizer.state.get(p, {}).items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    value = torch.tensor(value, dtype=torch.float64, device="cpu")
                if isinstance(value, torch.Tensor):
                    found[f"{key}/{self.names.of(p)}"] = value
        return {name: t for name, value in found.items() if (t := dense(value)) is not None}

    def snapshots(self, a, kinds):
        keys = []
        for kind, tensors in kinds.items():
            if tensors:
                data = safetensors({name: tensor_bytes(t) for name, t in tensors.items()})
                key = hashlib.blake2b(data, digest_size=8).hexdigest()
                keys.append(key)
                if key not in a.blobs and key not in self.files.written:
                    a.blobs[key] = (kind, data)
                    a.size += len(data)
        return keys

    def summaries(self, a, kinds):
        found = {name: summary(t) for tensors in kinds.values() for name, t in tensors.items()}
        a.size += sum(len(json.dumps(s)) for s in found.values())
        return found

    # -- objects

    def optimizer(self, optimizer):
        """Its number, as text."""
        index, _ = self.optimizers.number(optimizer)
        return str(index)

    def scaler(self, scaler):
        """Its number, as text; a new one is described in recording.json."""
        index, new = self.scalers.number(scaler)
        if new:
            about = {"policy": "torch.GradScaler"}
            if scaler.is_enabled():
                about |= {"init_scale": scaler.get_scale(), "growth_factor": scaler.get_growth_factor()}
                about |= {"backoff_factor": scaler.get_backoff_factor(), "growth_interval": scaler.get_growth_interval()}
            else:
                about["enabled"] = False
            self.about["scalers"][str(index)] = about
        return str(index)

    def covers(self, params):
        """Names of these parameters; None where one has none (absent means unknown)."""
        self.learn_names()
        names = [self.names.of(p) for p in params]
        return None if None in names else names


def settings_of(optimizer):
    """Hyper-parameters of the first group, without how it is computed."""
    hidden = ("params", "foreach", "capturable", "differentiable", "decoupled_weight_decay", "initial_lr")
    return {k: plain(v) for k, v in optimizer.param_groups[0].items() if k not in hidden and v is not None}


def rates(optimizer):
    """One learning rate, or one per group where they differ."""
    found = [number(group.get("lr")) for group in optimizer.param_groups]
    return found[0] if len(set(found)) == 1 else found


def found_inf(scaler, optimizer):
    """What the scaler found in this optimizer's gradients; None if it has not looked."""
    # not _found_inf_per_device(), which makes an entry where there was none
    state = scaler._per_optimizer_states.get(id(optimizer), {}) if scaler.is_enabled() else {}
    found = state.get("found_inf_per_device", {}).values()
    return any(bool(f.item()) for f in found) if found else None


def heads(optimizer):
    """(parameter, copy of its first elements) pairs, enough to see whether a step moves parameters, and whether that
    is all of them."""
    kept, room = [], HEAD
    for p in group_params(optimizer):
        if p.grad is not None and (t := dense(p)) is not None:
            kept.append((p, t.reshape(-1)[:room].clone()))
            room -= t.numel()
            if room < 0:
                break
    return kept, room >= 0


def applied(kept, whole):
    """Whether a step changed parameters. None where that cannot be told: NaN before and after, or only part compared."""
    for p, old in kept:
        new = dense(p)
        if new is None:
            whole = False
        elif not torch.equal(new.reshape(-1)[: old.numel()].view(torch.uint8), old.view(torch.uint8)):
            return True
    return False if whole and all(bool(torch.isfinite(old).all()) for _, old in kept) else None


# ---------------------------------------------------------------------------------------------------------------------
# What is watched
#
# A watch is a generator: what it does before `yield` happens before the call, what it does after, after it; `yield`
# gives what an error event would say and receives the result. Calls of one family inside another are not reported:
# clip_grad_norm_ calls get_total_norm, an optimizer may call another.


def watch(rec, owner, name, family, watcher, many=None):
    """Make owner.name tell `watcher` of its calls and do the same as before. `many`: the name of a first argument that
    may be an iterator, which must reach both the watcher and the function. Returns what now stands there."""
    original = owner.__dict__.get(name)
    if not isinstance(original, types.FunctionType) or original in WATCHED:
        return original

    @functools.wraps(original)
    def watched(*args, **kwargs):
        if family in rec.inside or torch.compiler.is_compiling() or capturing():
            return original(*args, **kwargs)
        rec.inside.append(family)
        told = about = None
        try:
            seen, seen_by_name = args, kwargs
            if many is not None:
                args, kwargs, seen, seen_by_name = listed(many, args, kwargs)
            try:
                told = watcher(rec, *seen, **seen_by_name)
                about = next(told, None)
            except Exception as error:  # noqa: BLE001: recording never breaks training
                told = rec.fault(error)
            result = original(*args, **kwargs)
            try:
                if told is not None:
                    told.send(result)
            except StopIteration:
                pass
            except Exception as error:  # noqa: BLE001
                rec.fault(error)
            return result
        except BaseException as error:
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


def capturing():
    """Whether a CUDA graph is being captured: any look at a value would break it off."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def listed(name, args, kwargs):
    """Arguments for the function, and for the watcher, where the first one may be an iterator."""
    given = args[0] if args else kwargs.get(name)
    if given is None or isinstance(given, torch.Tensor):
        return args, kwargs, args, kwargs
    items = list(given)
    # torch warns of an empty generator, so a generator has to stay one
    again = (item for item in items) if isinstance(given, types.GeneratorType) else items
    if args:
        return (again, *args[1:]), kwargs, (items, *args[1:]), kwargs
    return args, {**kwargs, name: again}, args, {**kwargs, name: items}


def note_error(rec, about, error):
    """The call raised: once as an event, however many watched calls it passes through."""
    try:
        if about is not None and not getattr(error, "_ordercheck_seen", False):
            error._ordercheck_seen = True
            rec.event("error", **about, type=type(error).__name__, text=str(error))
    except Exception as fault:  # noqa: BLE001
        rec.fault(fault)


# -- loss scaler


def scaler_init(rec, scaler, *_, **__):
    yield
    for cls in type(scaler).__mro__:
        watch_scaler(rec, cls)
    rec.event("scaler_create", scaler=rec.scaler(scaler), scale=scaler.get_scale(), enabled=scaler.is_enabled())


def scaler_scale(rec, scaler, outputs):
    place = rec.opening("scale_loss")
    micro = rec.attempt.count(place)
    scaled = yield {"during": "scale_loss", "scaler": rec.scaler(scaler)}
    scale = scaler.get_scale()
    if scaler.is_enabled():
        rec.attempt.scales.add(scale)
    rec.event("scale_loss", micro, scaler=rec.scaler(scaler), scale=scale, loss=number(outputs), scaled=number(scaled))


def scaler_unscale(rec, scaler, optimizer):
    step = rec.scaler_step
    names = {"scaler": rec.scaler(scaler), "optimizer": rec.optimizer(optimizer)}
    before = rec.look()
    yield {"during": "unscale", **names}
    found = found_inf(scaler, optimizer)
    rec.attempt.overflow |= bool(found)
    rec.event("unscale", rec.attempt.micro, **names, scale=scaler.get_scale(), found_inf=found,
              implicit=True if step is not None else None, before=before, after=rec.look())  # fmt: skip
    if step is not None and found:
        step["before"] = rec.look(state_of=optimizer, grads=False)


def scaler_step(rec, scaler, optimizer, *_, **__):
    names = {"scaler": rec.scaler(scaler), "optimizer": rec.optimizer(optimizer)}
    outer, rec.scaler_step = rec.scaler_step, {"called": False, "applied": False}
    step = rec.scaler_step
    try:
        if found_inf(scaler, optimizer):
            step["before"] = rec.look(state_of=optimizer, grads=False)
        yield {"during": "step", **names}
        if not step["called"]:
            step["after"] = rec.look(state_of=optimizer, grads=False)
        found = found_inf(scaler, optimizer)
        rec.attempt.overflow |= bool(found)
        rec.consumed()
        rec.event("step", **names, via="scaler", **step, found_inf=found, lr=rates(optimizer))
    finally:
        rec.scaler_step = outer


def scaler_update(rec, scaler, new_scale=None):
    previous = scaler.get_scale()
    yield {"during": "update_scale", "scaler": rec.scaler(scaler)}
    on = scaler.is_enabled()
    rec.event("update_scale", scaler=rec.scaler(scaler), scale=scaler.get_scale(), previous=previous, given=number(new_scale),
              growth_tracker=scaler._get_growth_tracker() if on else None, enabled=None if on else False)  # fmt: skip


def scaler_save(rec, scaler):
    yield
    on = scaler.is_enabled()
    rec.event("save", scaler=rec.scaler(scaler), what="scaler", scale=scaler.get_scale() if on else None,
              growth_tracker=scaler._get_growth_tracker() if on else None)  # fmt: skip


def scaler_load(rec, scaler, state_dict):
    previous = scaler.get_scale()
    yield {"during": "load", "scaler": rec.scaler(scaler)}
    rec.event("load", scaler=rec.scaler(scaler), what="scaler", scale=scaler.get_scale(), previous=previous,
              growth_tracker=scaler._get_growth_tracker())  # fmt: skip


# -- backward


def backward(rec, tensors, *_, **__):
    root = tensors if isinstance(tensors, torch.Tensor) else tensors[0] if len(tensors) == 1 else None
    place = rec.opening("backward")
    micro = rec.attempt.count(place)
    factor = last_factor(root)
    value = None if root is None else number(root)
    before = rec.look()
    yield {"during": "backward"}
    a = rec.attempt
    if not any(event["op"] == "scale_loss" for event in a.events) and factor is not None:
        a.scales.add(factor)
    a.micro, a.filled = micro, a.tick()
    a.accumulates |= micro > 0
    rec.event("backward", micro, root=value, factor=factor, before=before, after=rec.look(fresh=True))
    if rec.reduced:  # by the module's own hooks, so the look above is already at reduced gradients
        rec.reduced = False
        rec.event("reduce", micro, what="gradient", kind="mean", inside="backward")


def last_factor(root):
    """The constant that the root was last multiplied by; None if the graph shows none."""
    node = getattr(root, "grad_fn", None)
    if node is None or type(node).__name__ != "MulBackward0":
        return None
    left, right = (edge[0] for edge in node.next_functions)
    constant = node._saved_other if right is None else node._saved_self if left is None else None
    return None if constant is None else number(constant)


def data_parallel_forward(rec, module, *_, **__):
    yield
    rec.reduced |= module.require_backward_grad_sync and torch.is_grad_enabled()


# -- optimizers


def optimizer_init(rec, optimizer, *_, **__):
    yield
    adopt(rec, optimizer)


def adopt(rec, optimizer):
    """Number an optimizer and watch the methods that its class defines itself."""
    rec.optimizer(optimizer)
    for cls in type(optimizer).__mro__:
        if cls is torch.optim.Optimizer:
            break
        watch(rec, cls, "step", "optimizer", optimizer_step)
        watch(rec, cls, "zero_grad", "zero_grad", optimizer_zero_grad)


def optimizer_zero_grad(rec, optimizer, set_to_none=True):
    rec.opening("zero_grad")
    before = rec.look()
    yield {"during": "zero_grad", "optimizer": rec.optimizer(optimizer)}
    rec.event("zero_grad", optimizer=rec.optimizer(optimizer), set_to_none=bool(set_to_none), before=before, after=rec.look())


def module_zero_grad(rec, module, set_to_none=True):
    """Writes the same gradients as the zero_grad of an optimizer whose parameters are all this module's."""
    own = {id(p) for p in module.parameters()}
    mapped = [o for _, o in rec.optimizers.alive() if all(id(p) in own for p in group_params(o))]
    if not mapped:
        return  # nothing to say: `cleared` will see it
    rec.opening("zero_grad")
    before = rec.look()
    yield {"during": "zero_grad"}
    after = rec.look()
    for optimizer in mapped:
        rec.event("zero_grad", optimizer=rec.optimizer(optimizer), set_to_none=bool(set_to_none), before=before, after=after)


def optimizer_step(rec, optimizer, *args, closure=None, **__):
    """A call of its own, or the part of GradScaler.step that changes parameters."""
    step, names = rec.scaler_step, {"optimizer": rec.optimizer(optimizer)}
    if step is None and (args or closure):
        rec.opening("step")
    fields = {"called": True}
    if step is not None:
        fields |= {"fused": bool(getattr(optimizer, "_step_supports_amp_scaling", False))}
        fields |= {"grad_scale": number(getattr(optimizer, "grad_scale", None))}
    before, kept = rec.look(state_of=optimizer), heads(optimizer)
    yield {"during": "step", **names}
    fields |= {"applied": applied(*kept), "before": before, "after": rec.look(state_of=optimizer)}
    if step is not None:
        step.update(fields)
    else:
        rec.consumed()
        rec.event("step", **names, via="optimizer", **fields, lr=rates(optimizer))


def optimizer_save(rec, optimizer):
    yield
    rec.event("save", optimizer=rec.optimizer(optimizer), what="optimizer")


def optimizer_load(rec, optimizer, *_):
    yield {"during": "load", "optimizer": rec.optimizer(optimizer)}
    rec.event("load", optimizer=rec.optimizer(optimizer), what="optimizer")


def scheduler_init(rec, scheduler, *_, **__):
    yield  # the constructor steps it once; being of the same family, that step is not reported
    rec.event("note", text="scheduler created")
    watch(rec, type(scheduler), "step", "schedule", scheduler_step)


def scheduler_step(rec, scheduler, *_, **__):
    yield
    optimizer = scheduler.optimizer
    rec.event("schedule", optimizer=rec.optimizer(optimizer), lr=rates(optimizer), count=getattr(scheduler, "last_epoch", None))


def average_update(rec, *_, **__):
    yield
    rec.event("ema")


# -- clips and norms


def clip_norm(rec, parameters, max_norm, norm_type=2.0, *_, **__):
    params = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    before = rec.look()
    norm = yield {"during": "clip"}
    rec.event("clip", rec.attempt.micro, rule="global_norm", threshold=number(max_norm), norm_type=float(norm_type), norm=number(norm),
              n_tensors=len(params), covers=rec.covers(params), before=before, after=rec.look())  # fmt: skip


def clip_with_norm(rec, parameters, max_norm, total_norm, *_, **__):
    params = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    before = rec.look()
    yield {"during": "clip"}
    rec.event("clip", rec.attempt.micro, rule="global_norm", threshold=number(max_norm), norm=number(total_norm), norm_given=True,
              n_tensors=len(params), covers=rec.covers(params), before=before, after=rec.look())  # fmt: skip


def clip_value(rec, parameters, clip_value, *_, **__):
    params = [parameters] if isinstance(parameters, torch.Tensor) else parameters
    before = rec.look()
    yield {"during": "clip"}
    rec.event("clip", rec.attempt.micro, rule="value", threshold=number(clip_value), n_tensors=len(params), covers=rec.covers(params),
              before=before, after=rec.look())  # fmt: skip


def total_norm(rec, tensors, norm_type=2.0, *_, **__):
    grads = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    value = yield {"during": "norm"}
    rec.learn_names()
    owner = {id(p.grad): name for name, p in rec.names.watched() if p.grad is not None}
    names = [owner.get(id(g)) for g in grads]
    rec.event("norm", value=number(value), norm_type=float(norm_type), n_tensors=len(grads), covers=None if None in names else names)


# -- ranks


def collective(rec, *args, **kwargs):
    tensors = args[0] if args else kwargs.get("tensor", kwargs.get("tensors", kwargs.get("input")))
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    op = kwargs.get("op", next((a for a in args[1:] if isinstance(a, torch.distributed.ReduceOp.RedOpType)), torch.distributed.ReduceOp.SUM))
    kinds = {"SUM": "sum", "AVG": "mean", "MAX": "max", "MIN": "min", "PRODUCT": "product"}
    rec.learn_names()
    memory = {t.untyped_storage().data_ptr() for t in tensors}
    covers = [n for n, p in rec.names.watched() if p.grad is not None and p.grad.untyped_storage().data_ptr() in memory]
    fields = {"kind": next((kind for name, kind in kinds.items() if op == getattr(torch.distributed.ReduceOp, name)), str(op))}
    fields |= {"inside": "backward" if "backward" in rec.inside else None, "numel": sum(t.numel() for t in tensors)}
    before = rec.look() if covers else None
    yield {"during": "reduce"}
    done = not kwargs.get("async_op", False)  # else nothing is known yet, and waiting would change the run
    if covers:
        rec.event("reduce", rec.attempt.micro, what="gradient", **fields, covers=covers, before=before, after=rec.look() if done else None)
    else:
        rec.event("reduce", rec.attempt.micro, what="value", **fields, value=number(tensors[0]) if done and len(tensors) == 1 else None)


# -- installing


def watch_scaler(rec, cls):
    for name, family, watcher in (
        ("scale", "scale_loss", scaler_scale),
        ("unscale_", "unscale", scaler_unscale),
        ("step", "scaler", scaler_step),
        ("update", "update", scaler_update),
        ("state_dict", "save", scaler_save),
        ("load_state_dict", "load", scaler_load),
    ):
        watch(rec, cls, name, family, watcher)


def install(rec, module):
    """Put the watches in place, once torch has been imported and before any other code sees it."""
    global torch
    torch = module
    nn, optim, utils, schedulers = torch.nn, torch.optim, torch.nn.utils, [torch.optim.lr_scheduler.LRScheduler]
    watch(rec, torch.amp.GradScaler, "__init__", "scaler_init", scaler_init)
    watch_scaler(rec, torch.amp.GradScaler)
    watch(rec, torch.Tensor, "backward", "backward", backward)
    watch(rec, nn.parallel.DistributedDataParallel, "forward", "forward", data_parallel_forward)
    watch(rec, nn.Module, "zero_grad", "zero_grad", module_zero_grad)
    watch(rec, optim.Optimizer, "__init__", "optimizer_init", optimizer_init)
    watch(rec, optim.Optimizer, "__setstate__", "optimizer_init", optimizer_init)
    watch(rec, optim.Optimizer, "zero_grad", "zero_grad", optimizer_zero_grad)
    watch(rec, optim.Optimizer, "state_dict", "save", optimizer_save)
    watch(rec, optim.Optimizer, "load_state_dict", "load", optimizer_load)
    watch(rec, optim.swa_utils.AveragedModel, "update_parameters", "ema", average_update)
    while schedulers:
        cls = schedulers.pop()
        schedulers += cls.__subclasses__()
        watch(rec, cls, "step", "schedule", scheduler_step)
        watch(rec, cls, "__init__", "schedule", scheduler_init)

    functions = {}  # id of an original -> what stands for it
    for owner, name, family, watcher, many in (
        (torch.autograd, "backward", "backward", backward, None),
        (utils, "clip_grad_norm_", "clip", clip_norm, "parameters"),
        (utils, "clip_grads_with_norm_", "clip", clip_with_norm, "parameters"),
        (utils, "clip_grad_value_", "clip", clip_value, "parameters"),
        (utils, "get_total_norm", "clip", total_norm, "tensors"),
        *((torch.distributed, name, "reduce", collective, None) for name in ("all_reduce", "reduce", "all_reduce_coalesced")),
    ):
        if hasattr(owner, name):
            original = getattr(owner, name)
            functions[id(original)] = watch(rec, owner, name, family, watcher, many)
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("torch.")]:
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if id(value) in functions:  # torch holds it under this name too
                setattr(module, name, functions[id(value)])
    watch_autocast(rec)


def watch_autocast(rec):
    enter = torch.autocast.__enter__

    @functools.wraps(enter)
    def watched(self):
        if self._enabled and not torch.compiler.is_compiling():
            rec.about["precision"] = {"autocast": str(self.fast_dtype).removeprefix("torch.")}
        return enter(self)

    torch.autocast.__enter__ = watched


class AfterTorch:
    """Import hook: installs the watches when the script's first `import torch` ends. Importing torch any earlier would
    take from the script what it may do before, such as setting OMP_NUM_THREADS."""

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
                try:
                    install(self.rec, module)
                except Exception as error:  # noqa: BLE001
                    self.rec.fault(error)

            spec.loader.exec_module = exec_module
        return spec


# ---------------------------------------------------------------------------------------------------------------------
# Running the script


def start(settings):
    """A recorder that waits for torch, in this process and in those that it starts."""
    rec = Recorder(settings["out"], settings["script"], settings["steps"], settings["budget"])
    sys.meta_path.insert(0, AfterTorch(rec))
    os.register_at_fork(after_in_child=rec.forked)
    prepare = multiprocessing.spawn.get_preparation_data

    @functools.wraps(prepare)
    def prepared(name):
        data = prepare(name)
        if data.get("init_main_from_path") == settings["script"]:
            data["init_main_from_path"] = THIS_FILE  # which runs the script as the child's main module, see the end
        return data

    multiprocessing.spawn.get_preparation_data = prepared
    return rec


def run_in_child():
    """In a spawned process: record there too, and return what the script defines."""
    settings = json.loads(os.environ[SETTINGS])
    start(settings)
    found = runpy.run_path(settings["script"], run_name="__mp_main__")
    return {name: value for name, value in found.items() if not name.startswith("__")}


def without_recorder(traceback, leading=True):
    """The traceback as it would be without the recorder: without this file's frames, and without runpy's before it."""
    if traceback is None:
        return None
    name = traceback.tb_frame.f_code.co_filename
    if name == THIS_FILE or name == __file__ or (leading and "runpy" in name):
        return without_recorder(traceback.tb_next, leading)
    traceback.tb_next = without_recorder(traceback.tb_next, False)
    return traceback


def excepthook(kind, error, traceback):
    seen, chain = set(), [error]
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            link.__traceback__ = without_recorder(link.__traceback__)
            chain += [link.__cause__, link.__context__]
    sys.__excepthook__(kind, error, error.__traceback__)


def clear(out):
    """Make the directory ready: new, empty, or an older recording, of which no file stays."""
    os.makedirs(out, exist_ok=True)
    if os.listdir(out) and not os.path.exists(os.path.join(out, "recording.json")):
        raise SystemExit(f"record.py: {out} is not empty and no recording; name another directory with --out")
    for folder, pattern in ((out, r"(\.?recording(\.rank\d+)?\.json|events(\.rank\d+)?\.jsonl)"), (os.path.join(out, "tensors"), r"r\d+_s\d+_.*\.safetensors")):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if re.fullmatch(pattern + r"(\.\d+\.tmp)?", name):
                os.remove(os.path.join(folder, name))


def main():
    parser = argparse.ArgumentParser(prog="record.py", description="Record what a PyTorch training loop does, for ordercheck.")
    parser.add_argument("--out", default="recording", metavar="DIR", help="directory of the recording (default: recording)")
    parser.add_argument("--steps", metavar="N,N", help="look at tensors in these attempts only, counted from 0")
    parser.add_argument("--budget-mb", type=float, default=64, metavar="N", help="keep at most this much of tensors (default: 64)")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    given = parser.parse_args()
    try:
        steps = None if given.steps is None else [int(n) for n in given.steps.split(",")]
    except ValueError:
        parser.error(f"--steps takes numbers, such as 0,5,9: {given.steps}")
    script = os.path.abspath(given.script)
    if not os.path.isfile(script):
        parser.error(f"can't open file {script!r}")
    settings = {"out": os.path.abspath(given.out), "script": script, "steps": steps, "budget": int(given.budget_mb * (1 << 20))}
    if os.environ.get("RANK", "0") == "0":
        clear(settings["out"])
    os.environ[SETTINGS] = json.dumps(settings)
    sys.argv = [given.script, *given.args]
    sys.path[0] = os.path.dirname(script)
    sys.excepthook = excepthook
    rec = start(settings)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        rec.finish()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__" and SETTINGS in os.environ:
    # The recorder lives in a module of its own, so that the script's names cannot meet it here.
    _spec = importlib.util.spec_from_file_location("ordercheck_recorder", THIS_FILE)
    _module = importlib.util.module_from_spec(_spec)
    sys.modules[_spec.name] = _module
    _spec.loader.exec_module(_module)
    globals().update(_module.run_in_child())
