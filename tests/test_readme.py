"The numbers in README.md are those of the run whose results are committed beside the notebooks."
from statistics import mean

from common import read, root

def test_readme_prints_the_committed_demo():
    readme, results = (root/'README.md').read_text(encoding='utf-8'), read(root/'nbs'/'demo'/'results.json')
    for method in ('wd1', 'wd1+dps'):
        runs = [r for r in results['runs'] if r['method'] == method]
        assert len(runs) == results['settings']['seeds']
        assert f"| {method} | {len(runs)} | {mean(r['final_cell_accuracy'] for r in runs):.3f} [" in readme
    for c in results['comparisons']:
        assert f"{c['mean_difference']:+.3f} [{c['low']:+.3f}, {c['high']:+.3f}]" in readme, (c['method'], c['versus'])
    difference = next(c for c in results['comparisons'] if c['versus'] == 'wd1')
    says_zero = 'not distinguishable from 0' in readme
    assert says_zero == (difference['low'] <= 0 <= difference['high'])

def test_readme_gives_the_commands_that_ci_runs():
    readme = (root/'README.md').read_text(encoding='utf-8')
    assert 'pip install -e . && daca-demo' in readme and "pip install -e '.[dev]' && python -m pytest" in readme

def test_readme_prints_the_committed_studies():
    readme, studies = (root/'README.md').read_text(encoding='utf-8'), root/'nbs'/'studies'
    at = {(r['method'], r['form'], r['K']): mean(r['update_mb']) for r in read(studies/'memory_of_views.json')['runs']}
    for form, text in (('one by one', 'takes {:.2f} to {:.2f} times'), ('together', 'in one graph {:.1f} to {:.1f} times')):
        ratios = [at[m, f, 8] / at[m, f, 1] for m, f, K in at if f == form and K == 8]
        assert text.format(min(ratios), max(ratios)) in readme
    for name, row in (('gsm8k', 'GSM8K'), ('math500', 'MATH-500'), ('countdown', 'Countdown')):
        found = read(studies/'protocols.json')['tasks'][name]
        line = next(l for l in readme.splitlines() if l.startswith(f'| {row} |'))
        for protocol in ('d1', 'strict'): assert f"{found[protocol]['correct']}/{found[protocol]['total']}" in line, (line, found[protocol])

def test_readme_prints_the_study_of_twelve_recipes():
    readme, trials = (root/'README.md').read_text(encoding='utf-8'), read(root/'nbs'/'studies'/'twelve_recipes.json')['lab']['trials']
    done = [t for t in trials if t['run']]
    assert len(done) == len(trials) and f'{len(trials)} runs' in readme
    final = lambda recipe: {t['seed']: t['run']['final']['cell_accuracy'] for t in done if (t['task'], t['recipe'], t['override']) == ('sudoku', recipe, 'plain')}
    a, b = final('wd1+dps'), final('wd1')
    assert len(a) == len(b) == 5 and f'{100*(mean(a.values()) - mean(b.values())):.1f} over five' in readme

def test_readme_prints_the_committed_benchmark():
    readme, rows = (root/'README.md').read_text(encoding='utf-8'), read(root/'nbs'/'bench.json')['rows']
    for name, r in rows.items():
        line = next(l for l in readme.splitlines() if l.startswith(f'| `{name}` |'))
        interval = f" [{r['low']:.2f}, {r['high']:.2f}]" if r['pairs'] > 1 else ''
        assert f"| {r['ratio']:.2f}{interval} |" in line and line.endswith(f"| {r['target']} | {'yes' if r['met'] else '**no**'} |"), (name, line)
