"Two processes do what one does: the same rollouts, the same gradient, the same metrics; and they resume. On CPUs, over gloo."
import os, subprocess, sys
from importlib.util import find_spec

import pytest
import torch

from common import root
from processes import METHODS, fresh, weights
from daca_grpo.denoiser import load_denoiser
from daca_grpo.files import read_jsonl
from daca_grpo.plan import accelerate_config
from daca_grpo.trainer import read_metrics

def start(out, *launcher, precision='no'):
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join([str(root), str(root/'tests'), *filter(None, [os.environ.get('PYTHONPATH')])]), 'OMP_NUM_THREADS': '1', 'TQDM_DISABLE': '1', 'CUDA_VISIBLE_DEVICES': '', 'DS_ACCELERATOR': 'cpu'}
    out.mkdir()
    return subprocess.Popen([sys.executable, *launcher, str(root/'tests'/'processes.py'), str(out), precision], env=env, cwd=out, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

@pytest.fixture(scope='module')
def found(tmp_path_factory):
    "What one process and two found"
    home = tmp_path_factory.mktemp('processes')
    launch = ('-m', 'accelerate.commands.launch', '--multi_gpu', '--num_processes', '2', '--num_machines', '1', '--mixed_precision', 'no', '--dynamo_backend', 'no', '--main_process_port', '0')
    by_file = lambda name: ('-m', 'accelerate.commands.launch', '--config_file', str(accelerate_config(name)), '--num_processes', '2', '--main_process_port', '0')
    started = {1: start(home/'1'), 2: start(home/'2', *launch), 'bf16': start(home/'bf16', precision='bf16'), 'fsdp': start(home/'fsdp', *by_file('full-fsdp2'), precision='fsdp')}
    if find_spec('deepspeed'): started['zero2'] = start(home/'zero2', *by_file('lora-zero2'), precision='zero2')
    for n, process in started.items():  # n processes, one with bf16, two with the file for FSDP or for DeepSpeed
        text = process.communicate(timeout=600)[0]
        assert process.returncode == 0, f'{n}\n{text[-4000:]}'
    return {n: (home/str(n), torch.load(home/str(n)/'found.pt', weights_only=False)) for n in started}

@pytest.mark.parametrize('method', METHODS)
def test_gradient_depends_neither_on_pieces_nor_on_processes(found, method):
    whole, metrics = found[1][1][f'gradient {method} 8']
    assert whole.abs().max() > 1e-3
    for n, rows in ((1, 4), (1, 2), (2, 8), (2, 4), (2, 2)):
        g, m = found[n][1][f'gradient {method} {rows}']
        torch.testing.assert_close(g, whole, atol=1e-6 * max(1, whole.abs().max().item()), rtol=0, msg=lambda s: f'{n} processes, {rows} rows a pass\n{s}')
        for k in metrics: assert abs(m[k] - metrics[k]) < 1e-5, (k, n, rows)
        if 'ratio' in metrics: assert abs(m['ratio'] - 1) < 1e-6 and abs(m['ratio_max'] - 1) < 1e-6

def test_rollouts_and_metrics_are_those_of_one_process(found):
    one, two = (read_metrics(found[n][0]/'run'/'metrics.jsonl') for n in (1, 2))
    assert [(r['step'], r['split']) for r in one] == [(r['step'], r['split']) for r in two]
    for k in ('reward', 'flat_groups', 'entropy', 'score_mean', 'net_advantage', 'loss', 'completion_length'):
        assert abs(one[1][k] - two[1][k]) < 1e-5, k  # the first batch: later ones may differ where an update's last bits tip a token
    texts = [[r['text'] for r in read_jsonl(found[n][0]/'run'/'samples.jsonl') if r['step'] == 1] for n in (1, 2)]
    assert texts[0][:4] == texts[1] and len(texts[1]) == 4  # the main process's share
    rewards = [read_jsonl(found[n][0]/'run'/'rewards.jsonl')[0]['rewards'] for n in (1, 2)]
    assert rewards[0] == rewards[1] and len(rewards[0]) == 8  # of all processes

deepspeed = pytest.mark.skipif(not find_spec('deepspeed'), reason='DeepSpeed is not installed')

@pytest.mark.parametrize('n', [1, 2, 'fsdp', pytest.param('zero2', marks=deepspeed)])
def test_stopped_run_goes_on_to_the_same_weights(found, n):
    out, got = found[n]
    assert torch.equal(got['run'][0], got['resumed'][0])
    assert len(got['calls']) < 3 * 8 / (1 if n == 1 else 2), 'it began again instead of going on'
    assert read_metrics(out/'run'/'metrics.jsonl') == read_metrics(out/'stopped'/'metrics.jsonl')

def test_adapter_of_two_processes(found):
    one, two = (found[n][1]['lora'] for n in (1, 2))
    torch.testing.assert_close(one[0], two[0], atol=5e-4, rtol=0)
    assert (found[2][0]/'lora'/'adapter'/'adapter_config.json').exists()

def test_sharded_training_ends_with_the_weights_of_one_process(found):
    for name in ('run', 'diffu-grpo+dps+sml', 'gdpo+sml'):  # the second has a reference policy
        torch.testing.assert_close(found['fsdp'][1][name][0], found[1][1][name][0], atol=1e-6, rtol=0)
    saved = load_denoiser(found['fsdp'][0]/'run'/'model')  # gathered, in the transformers format
    assert torch.equal(weights(saved), found['fsdp'][1]['run'][0])
    assert len(list((found['fsdp'][0]/'run'/'checkpoints').glob('update-*/sharded/*model*'))) > 0

@deepspeed
def test_deepspeed_ends_with_the_weights_of_one_process(found):
    for name in ('run', 'lora'): torch.testing.assert_close(found['zero2'][1][name][0], found[1][1][name][0], atol=1e-6, rtol=0)

def test_trackers_get_the_metrics(found):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    out = found[2][0]/'tracked'
    events = EventAccumulator(str(next(p.parent for p in out.rglob('events.out.tfevents*') if p.stat().st_size > 1000)))
    assert {p.relative_to(out).parts[:2] for p in out.rglob('events.out.tfevents*')} == {('daca_grpo', 'pair')}
    events.Reload()
    for name in ('loss', 'reward', 'ratio_max'):
        seen = [(e.step, e.value) for e in events.Scalars(f'train/{name}')]
        told = [(r['step'], r[name]) for r in read_metrics(out/'metrics.jsonl') if r['split'] == 'train']
        assert [s for s, _ in seen] == [s for s, _ in told]
        for (_, a), (_, b) in zip(seen, told): assert a == pytest.approx(b, rel=1e-5)

def test_mixed_precision_trains_float32_weights(found):
    for name, (w, result) in found['bf16'][1].items():
        assert w.dtype == torch.float32 and w.isfinite().all() and result['skipped_updates'] == 0
        ratios = [r['ratio_max'] for r in read_metrics(found['bf16'][0]/name/'metrics.jsonl') if 'ratio_max' in r]
        assert all(abs(r - 1) < .1 for r in ratios)  # old and current values go through the same precision
    sharded, whole = found['fsdp'][1]['bf16'][0], found['bf16'][1]['diffu-grpo+dps+sml'][0]
    assert (sharded - whole).norm() < .1 * (whole - weights(fresh())).norm()  # of the way that six updates went: bfloat16 turns the direction of the smallest
    one, two = (read_metrics(out/'metrics.jsonl')[1]['grad_norm'] for out in (found['bf16'][0]/'diffu-grpo+dps+sml', found['fsdp'][0]/'bf16'))
    assert one == pytest.approx(two, rel=.02)

def test_evaluation_of_two_processes_is_that_of_one(found):
    one, two = ([(r['item'], r['seed'], r['generation'], r['letters']) for r in read_jsonl(found[n][0]/'evaluation'/'generations.jsonl')] for n in (1, 2))
    assert one == two and len(one) == 6
