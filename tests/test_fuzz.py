"""Rewards are total: any string in, a finite number out, in bounded time (DESIGN 7.8).

DACA_FUZZ sets the number of random strings for each task; 400 by default, 100000 for a thorough search.
"""
import math, os, time
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature

import numpy as np
import pytest

from common import root
from daca_grpo.canvas import stream_rng
from daca_grpo.tasks.core import JUDGES, PROTOCOLS, TASKS, get_judge, get_task, nasty_strings, score

count = int(os.environ.get('DACA_FUZZ', 400))
limit = 10  # seconds for one call: a check may use one second of processor time, on a machine that is busy
programs = ['mbpp', 'humaneval']  # their rewards run what was generated; only the search for the program is tried, below
data = next((f for p in root.parents if (f := p/'shared'/'data').is_dir()), None)

pieces = [*nasty_strings()[:40], '<answer>', '</answer>', '<reasoning>', '</reasoning>', '<ANSWER>', '<|eot_id|>', '####', '\\boxed{', '}', '{', '[', ']', '"', ',', ':', '\\', '```json\n', '```\n',
          '```python\ndef f():\n', 'return ', '+', '-', '*', '/', '**', '//', '=', '(', ')', '1', '23', '4.5', '1e5', '-0', '1,000', '$7', '50%', '\\frac{1}{2}', '\\sqrt', '^{2}', '\\div', '\\times',
          'true', 'null', '{"a": 1}', '[1, 2]', '"name": "x"', '2024-01-01', '1234341221434321', 'a@b.c', ' ', '\n', '\t', '\0', '\x1b', '\ud800', '\udfff', '\u202e', '\u0661', '\u00b2', '\uff11', '\u2028', '\U0001f642',
          '\\u0000', '\\ud800', 'a' * 40 + '!', '(a+)+$', '__import__("os")', 'x' * 300, '9' * 300]

@cache
def large():
    "Strings of a megabyte, deep nesting, long numbers, what makes a pattern go back and forth."
    n, m, words = 1_000_000, 1_000_000 if count >= 10_000 else 150_000, ['a', '9', '[', '{"a":', '(', '<answer>', '<answer>1</answer>', '\\boxed{', '"', '\\', ' ', '\n', '```', '1+', '1 ', '\0', '\ud800', '{}', '\\frac{', '-', '$1', '####1', ',1']
    return [w * (m // len(w)) for w in words] + [w * n for w in 'a9['] + ['[' * 99 + ']' * 99, '1.' + '0' * n, '1e' + '9' * m, '"' + 'a' * n + '"', '{"a": ' + '9' * n + '}', 'a' * 5000 + '!', '=' * m + '1', '<answer>' + '9' * n + '</answer>', '\\boxed{' + '9' * m + '}']

def random_text(seed, i):
    "Pieces of what the parsers look for, or characters from anywhere"
    rng = stream_rng(seed, 'fuzz', i)
    if i % 4: return ''.join(pieces[j] for j in rng.integers(len(pieces), size=rng.integers(1, 25)))
    return ''.join(map(chr, rng.integers(0, [128, 256, 0x3000, 0x110000][i // 4 % 4], size=rng.integers(0, 200))))

def texts():
    yield from nasty_strings()
    yield from large()
    for i in range(count): yield random_text(0, i)

@cache
def find_task(name):
    "The task, or a skip that says why there is none"
    module, function = TASKS[name].rsplit(':', 1)
    if not find_spec(module) or not hasattr(import_module(module), function): pytest.skip(f'{TASKS[name]} does not exist')
    options = {}
    if 'data_dir' in signature(getattr(import_module(module), function)).parameters:
        if data is None: pytest.skip('no folder shared/data beside the repository')
        options = dict(data_dir=data)
    try: return get_task(name, **options)
    except FileNotFoundError as e: pytest.skip(f'no data for {name} in shared/data: {e}')

def shown(text): return f'{text[:60]!r} ({len(text)} characters)'

def timed(call, text, name):
    "The result of `call`, which may neither raise nor take long"
    start = time.monotonic()
    try: found = call()
    except Exception as e: raise AssertionError(f'{name} fails on {shown(text)}: {e!r}') from e
    assert time.monotonic() - start < limit, f'{name} takes more than {limit} s for {shown(text)}'
    return found

@pytest.mark.parametrize('name', sorted(set(TASKS) - {*programs}))
def test_reward_is_total(name):
    task = find_task(name)
    examples = task.test or task.valid or task.train
    for i, text in enumerate(texts()):
        row = timed(lambda: score(task, [examples[i % len(examples)]], [text])[0], text, name)
        assert all(map(math.isfinite, row.values())), f'{name}: {row} for {shown(text)}'

golds = {'gsm8k': ('1 + 1?', '2'), 'math500': ('What is half of 1?', '\\frac{1}{2}'), 'countdown': ('numbers 1, 2, 3, target 6', [[1, 2, 3], 6]), 'sudoku': ('Solve 1030000000000021', '1234341221434321'), 'json-schema': ('', '{"type": "object"}')}

@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('name', sorted(set(JUDGES) - {*programs}))
def test_judge_is_total(name, protocol):
    judge, (question, gold) = get_judge(name), golds[name]
    for text in texts():
        found = timed(lambda: judge(dict(question=question, generation=text, ground_truth=gold), protocol), text, name)
        assert 0 <= found.correct <= found.total >= 1, f'{name}: {found} for {shown(text)}'

searches = dict(  # how the code tasks find a program in a text and grade its form; nothing runs it
    read=lambda code, text: code.read_code(text), d1=lambda code, text: code.d1_code(text, 'f'), whole=lambda code, text: code.whole_sources(code.read_code(text)[:100_000]),
    rest=lambda code, text: code.continued_sources(code.read_code(text)[:100_000], 'def f(x):\n    "text"\n', 'f'), form=lambda code, text: [code.format_share(text, p) for p in ('strict', 'd1')])

@pytest.mark.parametrize('name', searches)
def test_search_for_a_program_is_total(name):
    code = pytest.importorskip('daca_grpo.tasks.code')
    for text in texts(): timed(lambda: searches[name](code, text), text, name)

@pytest.mark.parametrize('schema', ['{"pattern": "^(a+)+$"}', '{"pattern": "(x|x)*y"}', '{"additionalProperties": {"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}}', '{"items": {"format": "regex"}}'])
def test_patterns_that_explode(schema):
    from daca_grpo.tasks.core import Example
    from daca_grpo.tasks.json_schema import json_reward
    for text in ['"' + 'a' * 50 + '!"', '"' + 'x' * 50 + '"', '{"b": "' + 'a' * 60 + '"}', '["(a+)+$"]']:
        value = timed(lambda: json_reward(Example('', dict(schema=schema)), text, .2), text, schema)
        assert 0 <= value <= 1
