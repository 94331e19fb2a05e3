"A sweep as its users run it: commands that are killed, jobs of a real Slurm, disks that are full."
import signal, subprocess, sys
from pathlib import Path

import pytest
import torch
import yaml

from daca_grpo.denoiser import char_tokenizer, save_denoiser, small_denoiser
from daca_grpo.experiment import is_held, run_state
from daca_grpo.files import read_json, read_jsonl
from daca_grpo.sweep import load_sweep, status
from daca_grpo.tasks.core import get_task
from slurm import missing, slurm, wait_for

STEPS = 100

@pytest.fixture(scope='module')
def models(tmp_path_factory):
    "A small model with random weights, and a folder that holds none"
    folder = tmp_path_factory.mktemp('models')
    save_denoiser(small_denoiser(char_tokenizer(get_task('sudoku').alphabet), hidden_size=16, num_layers=1), folder/'small')
    (folder/'broken').mkdir(); (folder/'broken'/'config.json').write_text('{"model_type": "none such"}')
    return {name: str(folder/name) for name in ('small', 'broken')}

def write_spec(path, models, **changes):
    spec = {'name': 'six', 'recipes': ['wd1', 'wd1+dps'], 'tasks': {'sudoku': {'options': {'num_puzzles': [64, 8, 8]}}}, 'models': models, 'seeds': 3,
            'exclude': [{'model': 'broken', 'seed': ['1', '2']}, {'model': 'broken', 'recipe': 'wd1'}, {'model': 'small', 'seed': '0', 'recipe': 'wd1+dps'}],
            'settings': {'steps': STEPS, 'batch_size': 8, 'num_generations': 4, 'num_iterations': 1, 'num_steps': 4, 'eval_every': 0, 'checkpoint_every': 1}} | changes
    path.write_text(yaml.safe_dump(spec))
    return path

started = []

@pytest.fixture(autouse=True)
def no_command_is_left():
    yield
    for process in started: process.kill(); process.wait()

def start(spec, out, *options):
    started.append(subprocess.Popen([sys.executable, '-m', 'daca_grpo.sweep', str(spec), '--out', str(out), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return started[-1]

def finish(process, seconds=600):
    text = process.communicate(timeout=seconds)[0]
    return process.returncode, text

def states(out): return {r['id']: r['state'] for r in status(load_sweep(out))}
def attempts(out): return {r.id: run_state(out/'runs'/r.id).get('attempt', 0) for r in load_sweep(out).runs}
def count(out, state): return sum(s == state for s in states(out).values()) if (out/'sweep.json').exists() else 0

def check_complete(out, failed=()):
    "Every run has all its steps, once and in order, and a result"
    for run in load_sweep(out).runs:
        folder = out/'runs'/run.id
        if run.id in failed: continue
        assert run_state(folder)['state'] == 'done'
        assert [m['step'] for m in read_jsonl(folder/'metrics.jsonl') if m['split'] == 'train'] == list(range(1, STEPS + 1)), folder
        assert read_json(folder/'result.json')['steps'] == STEPS and (folder/'run.ipynb').exists()
        about = read_json(folder/'config.json')['about']
        assert about['host'] and about['versions']['torch'].startswith(torch.__version__.split('+')[0])

BROKEN = 'sudoku-broken-wd1+dps-seed0'

def test_local_sweep_survives_its_command(models, tmp_path):
    "SIGKILL of the command: its runs go on, the next command finds them, and repeats nothing"
    spec, out = write_spec(tmp_path/'six.yaml', models), tmp_path/'out'
    first = start(spec, out)
    wait_for(lambda: count(out, 'done') >= 1 and count(out, 'running') >= 1, 120, 'the end of a run while another goes on')
    second = start(spec, out)
    assert finish(second, 60)[0] == 2  # the folder has a command already
    first.kill(); first.wait()
    done = {r: (out/'runs'/r/'run.ipynb').stat().st_mtime_ns for r, s in states(out).items() if s == 'done'}
    code, text = finish(start(spec, out))
    assert code == 1 and f'runs/{BROKEN} is failed' in text and 'cell 4 ended with' in text, text
    check_complete(out, [BROKEN])
    assert {r: (out/'runs'/r/'run.ipynb').stat().st_mtime_ns for r in done} == done
    assert set(attempts(out).values()) == {1}, attempts(out)
    code, text = finish(start(spec, out))
    assert code == 1 and '0 to start' in text and attempts(out)[BROKEN] == 1  # a failed run waits for --retry-failed

def test_ctrl_c_and_a_full_disk_lose_nothing(models, tmp_path):
    "Ctrl-C ends a run, the same command goes on; /dev/full takes the place of a file in mid-run; with room again, the run goes on from its checkpoint"
    spec, out = write_spec(tmp_path/'one.yaml', {'small': models['small']}, recipes=['wd1'], seeds=1, exclude=[]), tmp_path/'out'
    process, folder = start(spec, out), tmp_path/'out'/'runs'/'sudoku-wd1-seed0'
    far = lambda n: (folder/'metrics.jsonl').exists() and len(read_jsonl(folder/'metrics.jsonl')) > n
    wait_for(lambda: far(3), 120, 'the first steps')
    process.send_signal(signal.SIGINT)
    code, text = finish(process)
    assert code == 130 and 'the same command does the rest' in text, text
    wait_for(lambda: run_state(folder)['state'] == 'stale' and not is_held(folder), 20, 'the end of its processes')
    seen = steps(out, 'sudoku-wd1-seed0')
    process = start(spec, out)
    wait_for(lambda: far(seen + 2), 120, 'more steps')
    (folder/'metrics.jsonl').rename(folder/'aside'); (folder/'metrics.jsonl').symlink_to('/dev/full')
    code, text = finish(process)
    assert code == 1 and 'No space left on device' in text, text
    (folder/'metrics.jsonl').unlink(); (folder/'aside').rename(folder/'metrics.jsonl')
    code, text = finish(start(spec, out, '--retry-failed'))
    assert code == 0, text
    check_complete(out)
    assert attempts(out) == {'sudoku-wd1-seed0': 3}

TWO = ['--multi_gpu', '--num_processes', '2', '--num_machines', '1', '--mixed_precision', 'no', '--dynamo_backend', 'no', '--main_process_port', '0']  # on CPUs, over gloo

def test_a_run_of_two_processes(models, tmp_path):
    "`accelerate` in a spec: the same numbers as one process, by processes that end with the one that started them"
    short = {'steps': 2, 'batch_size': 8, 'num_generations': 4, 'num_iterations': 1, 'num_steps': 4, 'eval_every': 0}
    found = {}
    for n, options in ((1, []), (2, TWO)):
        spec = write_spec(tmp_path/f'{n}.yaml', {'small': models['small']}, recipes=['wd1'], seeds=1, exclude=[], settings=short, accelerate=options)
        code, text = finish(start(spec, tmp_path/str(n)))
        assert code == 0, text + (tmp_path/str(n)/'runs'/'sudoku-wd1-seed0'/'log.txt').read_text()
        found[n] = read_jsonl(tmp_path/str(n)/'runs'/'sudoku-wd1-seed0'/'metrics.jsonl')
    assert (tmp_path/'2'/'runs'/'sudoku-wd1-seed0'/'launch.json').exists()
    for k in ('reward', 'loss', 'grad_norm', 'completion_length'): assert found[1][1][k] == pytest.approx(found[2][1][k], abs=1e-5), k
    out = tmp_path/'long'
    command = f"from daca_grpo.launch import launch_training; launch_training({TWO}, {str(out)!r}, dict(recipe='wd1', task='sudoku', model={models['small']!r}, **{short | {'steps': 10000}}))"
    started.append(subprocess.Popen([sys.executable, '-c', command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    alive = lambda: [p for p in Path('/proc').glob('[0-9]*/cmdline') if str(out/'launch.json').encode() in read_bytes(p)]
    wait_for(lambda: (out/'metrics.jsonl').exists(), 120, 'the first metrics')
    assert len(alive()) >= 3  # the launcher and two processes
    started[-1].kill()
    wait_for(lambda: not alive(), 60, 'the end of the processes')

def read_bytes(path):
    try: return path.read_bytes()
    except OSError: return b''  # a process that has just ended

def queue():
    "{job: state} of the Slurm"
    lines = subprocess.run(['squeue', '-h', '-r', '-o', '%i %T'], capture_output=True, text=True).stdout.split('\n')
    return dict(line.split() for line in lines if line)

def steps(out, run): return len(read_jsonl(out/'runs'/run/'metrics.jsonl')) if (out/'runs'/run/'metrics.jsonl').exists() else 0

@pytest.mark.skipif(missing() is not None, reason=f'no Slurm: {missing()}')
def test_sweep_on_slurm(models, tmp_path):
    "Six runs through a real queue: two at once, one cancelled, one requeued, one failing for good, the command killed and started again"
    spec, out = write_spec(tmp_path/'six.yaml', models), tmp_path/'out'
    with slurm(tmp_path/'slurm'):
        command = start(spec, out, '--executor', 'slurm', '--max-parallel', '2')
        wait_for(lambda: (out/'jobs.json').exists(), 60, 'the submission')
        seen, jobs = [], lambda: {r.removeprefix('runs/'): j for r, j in read_json(out/'jobs.json').items()}
        def middle(but=None):
            "A run that has a few steps behind it and many before it"
            now = queue(); seen.append((list(now.values()).count('RUNNING'), list(now.values()).count('PENDING')))
            return next((r for r, s in states(out).items() if r != but and s == 'running' and 4 < steps(out, r) < STEPS//2 and now.get(jobs().get(r)) == 'RUNNING'), None)
        def strike(*options, but=None):
            wait_for(lambda: middle(but), 120, 'a run in its middle')
            run = middle(but); job = jobs()[run]
            started.append(subprocess.Popen(['scancel', *options, job], stderr=subprocess.DEVNULL))
            return run, job
        victim, _ = strike()
        requeued, job = strike('-s', 'USR2', but=victim)  # what Slurm sends when the time is nearly up
        wait_for(lambda: queue().get(job) == 'PENDING', 60, 'the return to the queue')
        started.pop().kill()  # scancel tries again while a job is on its way to the queue; once is enough
        subprocess.run(['scontrol', 'update', f'JobId={job}', 'StartTime=now'], check=True)
        wait_for(middle, 120, 'a run in its middle'); command.kill(); command.wait()
        code, text = finish(start(spec, out, '--executor', 'slurm', '--max-parallel', '2'))
        assert code == 1 and f'runs/{BROKEN} is failed' in text and 'cell 4 ended with' in text, text
        assert not queue()
    assert max(r for r, _ in seen) == 2 and max(p for _, p in seen) >= 1, seen
    check_complete(out, [BROKEN])
    tries = attempts(out)
    assert tries[victim] == 2 and tries[requeued] == 2, (tries, victim, requeued)
    assert all(n == 1 for r, n in tries.items() if r not in (victim, requeued)), tries
    assert 'ended by SIGTERM' in (out/'runs'/victim/'log.txt').read_text()
