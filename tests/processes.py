"""What test_processes.py runs in one process and, under `accelerate launch`, in two: python tests/processes.py OUT no|bf16|fsdp|zero2."""
import os, sys
from dataclasses import replace
from pathlib import Path

import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from daca_grpo.denoiser import add_lora, char_tokenizer, save_denoiser, small_denoiser
from daca_grpo.evaluate import EvalConfig, run_evaluation
from daca_grpo.method import recipe
from daca_grpo.rollout import Sampler
from daca_grpo.tasks.core import Example, Task
from daca_grpo.trainer import TrainConfig, add_gradients, collect_batch, make_accelerator, process_state, start_run, train

METHODS = {'wd1+dps': recipe('wd1+dps', treatment='recentre'), 'diffu-grpo+dps+sml': recipe('diffu-grpo+dps+sml', beta=.04, per='all'), 'gdpo+sml': recipe('gdpo+sml'),
           'spg': recipe('spg'), 'unigrpo': recipe('unigrpo'), 'wd1 on the trajectory': recipe('wd1+dps', rule='shuffled', likelihood='on-trajectory')}

def echo_task(letters='abcd', size=4):
    share = lambda e, text: sum(c in e.prompt for c in text) / size
    problems = [Example(c*(1 + i), {}) for i, c in enumerate(letters)]  # prompts of different lengths
    return Task('echo', problems, problems, problems[:3], reward=share, metrics=lambda e, text: {'letters': share(e, text)}, alphabet=letters, length=size)

def fresh(): return small_denoiser(char_tokenizer('abcd'), hidden_size=32, num_layers=1, seed=1)

task = echo_task()
config = TrainConfig(steps=3, batch_size=8, num_generations=4, num_iterations=2, sampler=Sampler(4, 2, 4, 1.), eval_every=2, checkpoint_every=1, samples_every=1)

def gradient(method, rows_per_pass, out):
    "The gradient of a batch of eight rollouts at the second inner iteration, before any update, and its metrics"
    c = replace(config, rows_per_pass=rows_per_pass)
    accelerator = make_accelerator(method, c, out)
    run = start_run(accelerator, fresh(), task, method, c, out)
    collect_batch(run)
    metrics = add_gradients(accelerator, run.policy, method, c, run.state.batch, 1)
    return torch.cat([p.grad.flatten() for p in run.policy.parameters()]), metrics

def stopping_at(call):
    "The task, with a reward that raises at its n-th call"
    calls = iter(range(10**9))
    def reward(e, text):
        if next(calls) == call: raise KeyboardInterrupt
        return task.reward(e, text)
    return replace(task, reward=reward)

def weights(model): return torch.cat([getattr(p.detach(), 'full_tensor', p.detach)().flatten() for p in model.parameters()])  # whole, also where they are sharded

def trained(out, method=METHODS['wd1+dps'], task=task, lora=False, **settings):
    model = fresh()
    if lora: add_lora(model, 'all', rank=2)
    result = train(model, task, method, replace(config, **settings), out)
    return weights(model), result

def shard():
    "accelerate's FSDP, as its file says. It has it for accelerators only; told that these CPUs are some, it does the same over gloo"
    assert os.environ['ACCELERATE_USE_FSDP'] == 'true' and os.environ['FSDP_VERSION'] == '2'
    process_state()._shared_state['distributed_type'] = DistributedType.MULTI_XPU

def run_and_resume(out):
    "A run; and one that stops after its first batch, whatever the number of processes, and goes on"
    found = {'run': trained(out/'run', mixed_precision='no')}
    try: trained(out/'stopped', task=stopping_at(3 + 10), mixed_precision='no')
    except KeyboardInterrupt: pass
    found['calls'], counting = [], replace(task, reward=lambda e, text: (found['calls'].append(text), task.reward(e, text))[1])
    return found | {'resumed': trained(out/'stopped', task=counting, mixed_precision='no')}

def main(out, precision):
    out, found = Path(out), {}
    if precision == 'zero2':
        found = run_and_resume(out) | {'lora': trained(out/'lora', METHODS['diffu-grpo+dps+sml'], lora=True, mixed_precision='no')}
        if process_state().is_main_process: torch.save(found, out/'found.pt')
        return
    if precision == 'fsdp':
        shard()
        found = run_and_resume(out) | {name: trained(out/name, METHODS[name], mixed_precision='no') for name in ('diffu-grpo+dps+sml', 'gdpo+sml')}
        AcceleratorState._reset_state(); shard()  # a process has one precision otherwise
        found['bf16'] = trained(out/'bf16', METHODS['diffu-grpo+dps+sml'], mixed_precision='bf16')
        if process_state().is_main_process: torch.save(found, out/'found.pt')
        process_state().destroy_process_group()
        return
    if precision == 'bf16':
        found = {name: trained(out/name, METHODS[name], mixed_precision='bf16') for name in ('wd1+dps', 'diffu-grpo+dps+sml')}
        torch.save(found, out/'found.pt')
        return
    for name, method in METHODS.items():
        for rows in (8, 4, 2): found[f'gradient {name} {rows}'] = gradient(method, rows, out/'gradient')
    found |= run_and_resume(out)
    found |= {name: trained(out/name, METHODS[name]) for name in ('diffu-grpo+dps+sml', 'gdpo+sml')}
    found['tracked'] = trained(out/'tracked', METHODS['gdpo+sml'], log_with='tensorboard', group='pair')
    found['lora'] = trained(out/'lora', METHODS['diffu-grpo+dps+sml'], lora=True)
    if process_state().is_main_process: save_denoiser(fresh(), out/'model')
    process_state().wait_for_everyone()
    run_evaluation(out/'model', ['processes:echo_task'], out/'evaluation', EvalConfig((4,), block_length=4, temperature=1., seeds=(0, 1), batch_size=2))
    if process_state().is_main_process: torch.save(found, out/'found.pt')
    process_state().wait_for_everyone()
    process_state().destroy_process_group()

if __name__ == '__main__': main(*sys.argv[1:])
