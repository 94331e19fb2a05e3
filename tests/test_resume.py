"""A run that is killed with SIGKILL, at any moment, goes on to the same weights and the same metrics, bit for bit.

Each run is a process of its own, forked from a server that has imported torch.
"""
import multiprocessing, os, shutil, signal, threading, time, warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from daca_grpo.method import recipe
from daca_grpo.trainer import read_metrics, train
from processes import config, fresh, task

context = multiprocessing.get_context('forkserver')
context.set_forkserver_preload(['torch', 'transformers.models.llama.modeling_llama', 'daca_grpo.trainer'])
METHOD = recipe('diffu-grpo+dps+sml', beta=.04)
CONFIG = replace(config, steps=6, batch_size=16, num_iterations=3)

def die(): os.kill(os.getpid(), signal.SIGKILL)

def die_at_call(module, name, n, before):
    "Replace a function: its n-th call does `before(*args)` and is the last thing that happens"
    real, calls = getattr(module, name), iter(range(10**9))
    def call(*args, **kwargs):
        if next(calls) == n: before(real, *args, **kwargs); die()
        return real(*args, **kwargs)
    setattr(module, name, call)

def half_a_file(save, obj, path):
    save(obj, path)
    os.truncate(path, os.path.getsize(path) // 2)

def run(out, kill, seconds, sender):
    "Train in this process, which dies at the moment that `kill` says"
    torch.set_num_threads(1)
    if kill[0] == 'time': threading.Timer(kill[1] * seconds, die).start()
    if kill[0] == 'half a file': die_at_call(torch, 'save', kill[1], half_a_file)
    if kill[0] == 'before the rename': die_at_call(os, 'replace', kill[1], lambda *a: None)
    if kill[0] == 'half removed': die_at_call(shutil, 'rmtree', kill[1], lambda real, path, *a, **k: next(Path(path).iterdir()).unlink())
    warnings.filterwarnings('error', message='.*cannot be read')  # a whole checkpoint must be readable
    started = time.perf_counter()
    train(fresh(), task, METHOD, CONFIG, out)
    sender.send(time.perf_counter() - started)

def start(out, kill=('never',), seconds=0.):
    "Exit code of a run in a process of its own, and the seconds that it took if it ended"
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(out, kill, seconds, sender))
    process.start(); process.join()
    return process.exitcode, receiver.recv() if receiver.poll() else None

@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    "The folder of a run that nobody killed, and its duration"
    out = tmp_path_factory.mktemp('run')/'undisturbed'
    code, seconds = start(out)
    assert code == 0
    return out, seconds

def weights(out): return load_file(out/'model'/'model.safetensors')

times = [('time', float(f)) for f in np.random.default_rng(0).uniform(.1, .9, 3)]  # as a share of the undisturbed run: the clock makes it another moment every time
points = times + [('half a file', 9), ('half a file', 14), ('before the rename', 6), ('half removed', 3)]

@pytest.mark.parametrize('kill', points, ids=lambda k: ' '.join(map(str, k)))
def test_killed_run_goes_on(undisturbed, kill, tmp_path):
    truth, seconds = undisturbed
    out = tmp_path/'run'
    code, _ = start(out, kill, seconds)
    assert code == -signal.SIGKILL or kill[0] == 'time' and code == 0, f'exit code {code}: the process was to be killed'
    checkpoints = sorted(p.name for p in (out/'checkpoints').glob('update-*')) if (out/'checkpoints').exists() else []
    assert start(out)[0] == 0
    for (name, a), b in zip(weights(truth).items(), weights(out).values()): assert torch.equal(a, b), (name, checkpoints)
    assert read_metrics(out/'metrics.jsonl') == read_metrics(truth/'metrics.jsonl')
    for name in ('samples.jsonl', 'rewards.jsonl'): assert (out/name).read_bytes() == (truth/name).read_bytes(), name
    assert len(list((out/'checkpoints').glob('update-*'))) == CONFIG.save_total_limit

def test_run_killed_again_and_again(undisturbed, tmp_path):
    truth, seconds = undisturbed
    for share in (.5, .7, .9): start(tmp_path/'run', ('time', share), seconds)
    assert start(tmp_path/'run')[0] == 0
    for (name, a), b in zip(weights(truth).items(), weights(tmp_path/'run').values()): assert torch.equal(a, b), name
    assert read_metrics(tmp_path/'run'/'metrics.jsonl') == read_metrics(truth/'metrics.jsonl')
    for name in ('samples.jsonl', 'rewards.jsonl'): assert (tmp_path/'run'/name).read_bytes() == (truth/name).read_bytes(), name
