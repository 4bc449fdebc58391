"""Small training loops that test_record.py runs with and without the recorder: python loops.py NAME [WIDTH].

Each prints its losses and leaves in final.pt all that training has changed, the random state included.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.utils import clip_grad_norm_

STEPS, MAX_NORM, INIT_SCALE = 12, 1.0, 2.0**16
WIDTH = int(sys.argv[2]) if len(sys.argv) > 2 else 32
FAR_OFF = {4: 60.0, 8: 60.0}  # batch -> how far off its targets are: these overflow


def model():
    return nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(WIDTH, 4))


def batch(i, rank=0):
    g = torch.Generator().manual_seed(1000 + 2 * i + rank)
    x = torch.randn(16, 8, generator=g)
    return x, 3.0 * torch.tanh(x[:, :4]) * FAR_OFF.get(i, 1.0)


def loss_of(net, i, rank=0):
    x, y = batch(i, rank)
    with torch.autocast("cpu", dtype=torch.float16):
        return nn.functional.mse_loss(net(x).float(), y)


def new_scaler(**more):
    return torch.amp.GradScaler("cpu", init_scale=INIT_SCALE, growth_interval=3, **more)


def leave(*objects, name="final.pt"):
    torch.save([o if isinstance(o, (float, list)) else o.state_dict() for o in objects] + [torch.get_rng_state()], name)


def right():
    net = model()
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(net, step)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        norm = clip_grad_norm_(net.parameters(), MAX_NORM)
        scaler.step(opt)
        scaler.update()
        print(step, loss.item(), norm.item(), scaler.get_scale())
    leave(net, opt, scaler)


def clip_first():
    net = model()
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(net, step)
        scaler.scale(loss).backward()
        norm = clip_grad_norm_(net.parameters(), MAX_NORM)
        scaler.step(opt)
        scaler.update()
        print(step, loss.item(), norm.item(), scaler.get_scale())
    leave(net, opt, scaler)


def accumulate():
    net = model()
    opt, scaler = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9), new_scaler()
    for i in range(STEPS):
        loss = loss_of(net, i) / 3
        scaler.scale(loss).backward()
        print(i, loss.item(), scaler.get_scale())
        if i % 3 == 2:
            scaler.unscale_(opt)
            nn.utils.clip_grad_value_(net.parameters(), 0.5)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=False)
    leave(net, opt, scaler)


def two_optimizers():
    left, right = model(), model()
    opts, scaler = [torch.optim.Adam(left.parameters()), torch.optim.RMSprop(right.parameters())], new_scaler()
    for step in range(STEPS):
        for opt in opts:
            opt.zero_grad()
        loss = loss_of(left, step) + loss_of(right, 0)
        scaler.scale(loss).backward()
        for opt in opts:
            scaler.step(opt)
        scaler.update()
        print(step, loss.item(), scaler.get_scale())
    leave(left, right, *opts, scaler)


def fused():
    net = model()
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3, fused=True), new_scaler()
    for step in range(STEPS):
        opt.zero_grad()
        loss = loss_of(net, step)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        print(step, loss.item(), scaler.get_scale())
    leave(net, opt, scaler)


def by_hand():
    net = model()
    opt, scale = torch.optim.AdamW(net.parameters(), lr=3e-3), INIT_SCALE
    for step in range(STEPS):
        net.zero_grad()
        loss = loss_of(net, step)
        (loss * scale).backward()
        for p in net.parameters():
            p.grad.div_(scale)
        if all(p.grad.isfinite().all() for p in net.parameters()):
            clip_grad_norm_((p for p in net.parameters()), MAX_NORM)
            opt.step()
        else:
            scale /= 2
        print(step, loss.item(), scale)
    leave(net, opt, scale)


def masters():
    net = model().half()
    copies = [p.detach().float().clone().requires_grad_() for p in net.parameters()]
    opt, scale = torch.optim.AdamW(copies, lr=3e-3), 2.0**12
    for step in range(STEPS):
        net.zero_grad()
        x, y = batch(step)
        loss = nn.functional.mse_loss(net(x.half()).float(), y)
        (loss * scale).backward()
        if all(p.grad.isfinite().all() for p in net.parameters()):
            for copy, p in zip(copies, net.parameters()):
                copy.grad = p.grad.float().div_(scale)
            clip_grad_norm_(copies, MAX_NORM)
            opt.step()
            with torch.no_grad():
                for copy, p in zip(copies, net.parameters()):
                    p.copy_(copy)
        else:
            scale /= 2
        print(step, loss.item(), scale)
    leave(net, opt, scale)


def resumed():
    net = model()
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)
    for step in range(STEPS):
        if step == 6:
            saved = opt.state_dict(), scaler.state_dict()
            opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
            opt.load_state_dict(saved[0])
            scaler.load_state_dict(saved[1])
        opt.zero_grad()
        loss = loss_of(net, step)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        schedule.step()
        print(step, loss.item(), scaler.get_scale(), opt.param_groups[0]["lr"])
    leave(net, opt, scaler)


def closure():
    net = model()
    opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
    for step in range(3):

        def evaluate():
            opt.zero_grad()
            loss = nn.functional.mse_loss(net(batch(0)[0]), batch(0)[1])
            loss.backward()
            return loss

        print(step, opt.step(evaluate).item())
    leave(net, [p.detach() for p in net.parameters()])


def raises():
    net = model()
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
    for step in range(STEPS):
        scaler.scale(loss_of(net, step)).backward()
        scaler.unscale_(opt)
        scaler.unscale_(opt)


def obstructed():
    """Stands in the recorder's way: its folder becomes a file."""
    folder = os.path.join("recording", "tensors")
    if os.path.isdir(folder):
        os.rmdir(folder)
        open(folder, "w").close()
    right()


def rank_loop(rank, world, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(7)
    net = nn.parallel.DistributedDataParallel(model())
    opt, scaler = torch.optim.AdamW(net.parameters(), lr=3e-3), new_scaler()
    for step in range(6):
        opt.zero_grad()
        loss = loss_of(net, step, rank)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        joined = loss.detach().clone()
        dist.all_reduce(joined)
        if rank == 0:
            print(step, joined.item(), scaler.get_scale(), flush=True)
    leave(net, opt, scaler, name="final.pt" if rank == 0 else f"final.rank{rank}.pt")
    dist.destroy_process_group()


def ranks():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_loop, args=(2, os.path.join(folder, "store")), nprocs=2)


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(7)
    globals()[sys.argv[1]]()
